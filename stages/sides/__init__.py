"""Side inputs: rows that are processed with the content of other collections, window by window.

May import `pending_rows` and all below it.
"""
