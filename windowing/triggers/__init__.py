"""Triggers: when a window emits."""
