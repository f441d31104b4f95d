"""A run as a timeline: a trace that Perfetto shows."""
