"""Aggregates: their accumulators, how these merge, and their results.

May import `pickled` and all below it.
"""
