"""A batch: ingestion, steps of stages, envelopes and messages, and its output. May import what `runtime` may."""
