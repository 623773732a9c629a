"""Watermark strategies of sources."""
