"""Random scenarios: each is run twice, and its results are compared and recomputed from its trace."""
