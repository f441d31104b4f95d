"""Who takes part, and when a round closes: plugins."""
