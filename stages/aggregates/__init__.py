"""Aggregates: what is kept of rows, how it merges, and what it gives.

May import `pickled` and all below it.
"""
