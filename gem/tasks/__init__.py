"""What to solve: tasks and the sets they come in."""
