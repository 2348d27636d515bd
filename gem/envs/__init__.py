"""Environments, a package for each family; `catalog` gathers their ids, and imports no environment."""
