"""Computing what is alike of many clients at once, with the bits of one at a time."""
