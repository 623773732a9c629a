"""Savepoints, and moving state to other shards. May import `run` and all below it."""
