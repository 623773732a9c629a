"""Joins by time: pairs of rows of two sides whose event times are near each other.

May import `waiting` and all below it.
"""
