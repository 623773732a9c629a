"""Keyed state and timers: the methods of a user's class are called for rows and timers, key by key.

May import `pending_rows` and all below it.
"""
