"""Watermark strategies of sources. May import `keys`, `graph`, `facts`, `errors` and all below them."""
