"""What pictures of runs and studies show, apart from how they are drawn."""
