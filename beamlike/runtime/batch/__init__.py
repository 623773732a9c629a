"""A batch: ingestion, steps of stages, envelopes and messages, and the writing of its rows. May import `plan`."""
