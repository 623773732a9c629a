"""Watermark strategies of sources.

May import `keys`, `graph`, `declared`, `facts`, `errors`, `dropped`, `parted`, `sizes`, `sorting` and all below them.
"""
