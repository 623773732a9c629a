"""Side inputs: rows that see what another collection has in the window that theirs is mapped to.

May import `custom`, `pending_rows` and all below them.
"""
