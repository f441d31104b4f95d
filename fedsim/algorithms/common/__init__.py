"""What several algorithms share."""
