"""Files out: run folders, summaries, tables and comparisons. Nothing here prints."""
