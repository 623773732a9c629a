"""Keyed state and timers: rows and timers are played key by key, by methods of a class of the user's.

May import `waiting` and all below it.
"""
