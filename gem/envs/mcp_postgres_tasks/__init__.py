"""Families of database tasks."""
