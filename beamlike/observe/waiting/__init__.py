"""Explanations why a window has not fired. May import what `observe` may."""
