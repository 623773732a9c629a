"""Declarations: sources, windows, groupings, joins and other steps of a pipeline, and the checks of each.

May import `steps`, `records` and all below them.
"""
