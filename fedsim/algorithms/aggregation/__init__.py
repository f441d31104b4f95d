"""Rules by which a server combines what clients send: the mean, and robust rules in its place."""
