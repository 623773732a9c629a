"""The files in which a run reports its progress: the record of each batch, and its current activity.

May import `expressions`, `io` and all below them.
"""
