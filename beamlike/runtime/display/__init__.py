"""A run as text, tables and HTML. May import `run` and all below it."""
