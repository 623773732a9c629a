"""The loop of a run: batch after batch, each logged in a journal before it begins.

May import `savepoint`, `display`, `recorded` and all below them.
"""
