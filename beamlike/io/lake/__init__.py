"""Tables of Delta Lake and Apache Iceberg. May import what `io` may."""
