"""Tables of SQL databases as sources and sinks. May import what `io` may."""
