"""The run: server and clients as actors, who takes part, what is measured. Ready-made parts, no files."""
