"""Services over the network: environments, search."""
