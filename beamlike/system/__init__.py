"""Of processes: locks, files that outlive a power cut, signals, text safe on a terminal, what one is at right now.

May import `errors`, `version` and all below them.
"""
