"""Services over the network: environments, a recording proxy, search."""
