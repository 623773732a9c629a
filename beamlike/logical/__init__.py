"""Declarations: sources, windows, groupings, joins and other steps of a pipeline, with their checks.

May import `steps`, `records` and all below them.
"""
