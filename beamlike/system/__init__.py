"""Services for the process: memory allocator, threads, locks, durable files, signals, checksums, the current activity.

May import `errors`, `version` and all below them.
"""
