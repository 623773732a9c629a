"""Side inputs: rows that see what another collection has in the window that theirs is mapped to.

May import `pending_rows` and all below it.
"""
