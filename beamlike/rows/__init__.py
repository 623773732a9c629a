"""Rows of users: the types of their columns, their values, their event times, and what cannot be used.

May import `errors`, `version` and all below them.
"""
