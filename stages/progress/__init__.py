"""Progress of event time: the watermarks of splits, sources and stages.

May import `strategies`, `aggregates` and all below them.
"""
