"""Services over the network: search."""
