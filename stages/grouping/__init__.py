"""The windowed grouping: merging, firing, and its side output of dropped elements.

May import `pending_rows` and all below it.
"""
