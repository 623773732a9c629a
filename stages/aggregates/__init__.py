"""Aggregates: what is kept of rows, how it merges, and what it gives.

May import `keys`, `graph`, `declared`, `facts`, `errors`, `dropped`, `parted`, `sizes`, `sorting` and all below them.
"""
