"""What happened: read from the trace, kept as tables, checked."""
