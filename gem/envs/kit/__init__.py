"""Shared parts of the environment families: text games, data sets, tasks with a workspace, drawing."""
