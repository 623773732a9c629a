"""Text, tables and HTML that show a run. May import `run` and all below it."""
