"""Device classes: one file each, with the sources of their figures."""
