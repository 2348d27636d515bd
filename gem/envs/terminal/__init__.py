"""Terminal environments: shell tasks in a sandbox or a container."""
