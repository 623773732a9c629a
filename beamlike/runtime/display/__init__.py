"""Text and tables that show a run. May import `run` and all below it."""
