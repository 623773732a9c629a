"""Services of the process: the allocator, threads, locks, durable files, signals, checksums, the current activity.

May import `errors`, `version` and all below them.
"""
