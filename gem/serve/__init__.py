"""Services over the network: search, a recording proxy."""
"""Services over the network: environments, search."""
