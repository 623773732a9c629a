"""Savepoints, and state on its way to other shards. May import `run` and all below it."""
