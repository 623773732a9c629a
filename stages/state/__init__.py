"""The tables of a stage in a store: which rows are due, where they hold the watermark, and what a step reads.

May import `pending_rows` and all below it.
"""
