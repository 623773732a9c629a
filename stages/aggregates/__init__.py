"""Aggregates of a grouping: count, sum, mean, quantiles and others, as expressions over columns.

May import `pickled` and all below it.
"""
