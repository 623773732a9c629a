"""Watermark strategies of sources.

May import `pickled` and all below it.
"""
