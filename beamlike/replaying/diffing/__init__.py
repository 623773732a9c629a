"""Comparison of two versions of a pipeline over the recorded input of a run.

May import what `replaying` may.
"""
