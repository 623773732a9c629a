"""Of processes: the allocator, locks, files that outlive a power cut, signals, what one is at; text safe on a terminal.

May import `errors`, `version` and all below them.
"""
