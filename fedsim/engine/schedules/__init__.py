"""How learning rates change from round to round, or from step to step: one file, one function."""
