"""Stages: operators over state that follow watermarks, as pure functions over columns.

May import `windowing` and all below it.
"""
