"""Keyed state and timers: operators that play rows and timers key by key, and what users declare of them.

Imports `windowing`, and of `stages` the operator protocol, progress and aggregates.
"""
