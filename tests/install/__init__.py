"""Checks of the package that users install: what is in it, and whether it runs in environments that have only that."""
