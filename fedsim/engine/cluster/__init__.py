"""Jobs and runs on a Ray cluster. Ray is imported when it is asked for."""
