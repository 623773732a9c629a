"""The state of a stage in a key-value store: how rows are stored, and which of them a step must read.

May import `pending_rows` and all below it.
"""
