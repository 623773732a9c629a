"""Streams of Redis as a source. May import what `io` may."""
