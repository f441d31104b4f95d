"""When a round closes: one file, one pacing."""
