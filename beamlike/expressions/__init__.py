"""Expressions and aggregates of users: their construction, their columns, and their text.

May import `rows`, `system` and all below them.
"""
