"""Triggers: the rules that say when a window emits. May import what `windowing` may."""
