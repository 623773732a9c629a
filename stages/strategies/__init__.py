"""Watermark strategies of sources. May import `keys`, `graph`, `facts`, `errors`, `dropped` and all below them."""
