"""Kafka topics as a source and as a sink. May import what `io` may."""
