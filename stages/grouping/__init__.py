"""The windowed grouping: merging, firing, and what it leaves out."""
