"""Looking at a run: its records as a history, in sentences, in a table, on a page, and as metrics."""
