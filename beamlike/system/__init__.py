"""Services for the process: memory allocator, threads, locks, files, signals, HTML, checksums, current activity.

May import `errors`, `version` and all below them.
"""
