"""Replays of batches of earlier runs, in this process and without their sinks.

May import `local`, `spark`, `observe` and all below them.
"""
