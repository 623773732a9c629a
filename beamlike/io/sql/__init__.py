"""Tables of SQL databases as sinks."""
