"""Who runs jobs: one file, one executor."""
