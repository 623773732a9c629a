"""Side inputs: rows that see what another collection has in the window that theirs is mapped to.

May import `waiting` and all below it.
"""
