"""A source that a test writes step by step. May import what `io` may."""
