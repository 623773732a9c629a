"""Files as sources and sinks: finding, ordering, reading and writing them in each format.

May import what `io` may.
"""
