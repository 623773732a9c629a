"""Explains why a window has not fired yet. May import what `observe` may."""
