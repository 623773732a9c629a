"""Watermark strategies of sources.

May import `keys`, `graph`, `facts`, `errors`, `dropped`, `parted`, `sizes` and all below them.
"""
