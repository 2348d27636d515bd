"""Text games, one file each, over `base.TextGame`."""
