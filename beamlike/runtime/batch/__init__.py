"""The processing of one batch: ingestion, stage steps, envelopes and messages, and output. May import what `runtime`
may.
"""
