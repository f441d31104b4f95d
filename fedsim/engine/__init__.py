"""Work: jobs as data, what they cost, and who does them."""
