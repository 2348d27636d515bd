"""Text games, one file each."""
