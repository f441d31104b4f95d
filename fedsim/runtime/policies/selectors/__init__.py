"""Who is asked: one file, one selector."""
