"""What families of environments share: text games, data sets, tasks with a workspace, drawing."""
