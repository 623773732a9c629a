"""The rows of a stage in a store: what is due, what holds, and what a step has to look at.

May import `waiting` and all below it.
"""
