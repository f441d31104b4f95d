"""What a scenario or a study will cost, before it runs."""
