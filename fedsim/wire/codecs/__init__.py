"""Codecs: what makes the arrays of messages shorter before they become frames."""
