"""Tables of SQL databases as sinks. May import what `io` may."""
