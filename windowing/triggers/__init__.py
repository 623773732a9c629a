"""Triggers: when a window emits. May import what `windowing` may."""
