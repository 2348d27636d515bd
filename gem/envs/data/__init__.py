"""Tasks from a file of one's own."""
