"""Users' rows: column types, values, event times, and dead letters.

May import `errors`, `version` and all below them.
"""
