"""A run over sockets: both sides, and what passes between them beside messages."""
