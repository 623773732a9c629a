"""Checks of the package that users install: its content, and runs in environments with nothing else."""
