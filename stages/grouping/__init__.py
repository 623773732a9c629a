"""The windowed grouping: merging, firing, and what it leaves out. May import `waiting` and all below it."""
