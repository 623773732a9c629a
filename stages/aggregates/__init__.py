"""Aggregates: what is kept of rows, how it merges, and what it gives.

May import `keys`, `graph`, `facts`, `errors`, `dropped`, `parted`, `sizes`, `sorting` and all below them.
"""
