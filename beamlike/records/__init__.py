"""The files in which a run reports itself: the record of each batch, and its current activity.

May import `expressions`, `io` and all below them.
"""
