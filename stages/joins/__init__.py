"""Joins by time: pairs of rows of two sides whose event times are near each other.

May import `pending_rows` and all below it.
"""
