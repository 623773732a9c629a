"""Watermark strategies of sources.

May import `keys`, `graph`, `facts`, `errors`, `dropped`, `sizes` and all below them.
"""
