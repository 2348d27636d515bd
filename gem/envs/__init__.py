"""Environments. `catalog` holds the ids as plain data; nothing else is imported until it is made."""
