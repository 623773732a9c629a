"""Expressions and aggregates of users: how they are constructed, the columns they read, and their text.

May import `rows`, `system` and all below them.
"""
