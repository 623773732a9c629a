"""Runs that are killed: a job to kill, the places where it can be cut short, and what must be left at the end."""
