"""Names of upstream's `gem.utils`, at their place; each module names its real home."""
