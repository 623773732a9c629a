"""Runs that are killed: a job to kill, the places where it is cut short, and the rows that must be left at the end."""
