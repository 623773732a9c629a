"""The windowed grouping: merging, firing, and what it leaves out. May import `pending_rows` and all below it."""
