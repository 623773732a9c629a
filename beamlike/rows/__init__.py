"""Users' rows: column types, classes of rows, values, event times, and dead letters.

May import `errors`, `version` and all below them.
"""
