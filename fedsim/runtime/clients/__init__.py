"""The clients' side of a run."""
