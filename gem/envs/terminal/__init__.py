"""Tasks at a shell, in a sandbox or a container."""
