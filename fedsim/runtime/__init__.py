"""The run: server and clients as actors, who takes part, what is measured. Takes ready-made parts, knows no files."""
