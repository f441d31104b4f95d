"""Who is in a cohort: one file, one selector."""
