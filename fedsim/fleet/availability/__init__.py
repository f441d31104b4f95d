"""When clients are there: one model a file, each a function of client and time."""
