"""Redis streams as a source. May import what `io` may."""
