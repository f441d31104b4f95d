"""Ways of spreading labelled samples over clients, one file each."""
