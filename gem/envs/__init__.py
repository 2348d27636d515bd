"""Environments, one package per family; `catalog` collects their ids without importing them."""
