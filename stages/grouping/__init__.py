"""The windowed grouping: merging, firing, and its side output of dropped elements.

May import `custom`, `pending_rows` and all below them.
"""
