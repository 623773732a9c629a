"""Stateless steps on rows. May import `expressions`, `io` and all below them."""
