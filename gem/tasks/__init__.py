"""Tasks and task sets: the problems that environments present."""
