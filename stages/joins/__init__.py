"""Joins of rows by key and event time: interval joins, as-of joins, and joins without bounds of time.

May import `pending_rows` and all below it.
"""
