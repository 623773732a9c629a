"""Watermark strategies of sources.

May import `keys`, `graph`, `facts`, `errors`, `dropped`, `parted`, `sizes`, `sorting` and all below them.
"""
