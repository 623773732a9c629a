"""Services of the process: the allocator, threads, locks, durable files, signals, checksums, the current activity.

May import `errors`, `operators`, `version` and all below them.
"""
