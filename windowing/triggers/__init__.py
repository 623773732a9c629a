"""Triggers: the rules that decide when a window emits a pane. May import what `windowing` may."""
