"""The past of a run: what values decided, what is alive at an instant, and a run that repeats both."""
