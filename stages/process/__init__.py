"""Keyed state and timers: calls a user's class for each row and timer of a key, with the state of that key.

May import `pending_rows` and all below it.
"""
