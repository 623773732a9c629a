"""What a run tells of itself in files: the record of each batch, and what is at work right now.

May import `expressions`, `io` and all below them.
"""
