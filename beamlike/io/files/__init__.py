"""Files as sources and sinks: listing, ordering, reading and writing them in each format.

May import what `io` may.
"""
