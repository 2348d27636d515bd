"""Services over the network: search, a recording proxy."""
