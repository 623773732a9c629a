"""The windowed grouping: merging, firing, and what it leaves out. May import `operator` and all below it."""
