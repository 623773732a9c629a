"""A source for tests, defined step by step. May import what `io` may."""
