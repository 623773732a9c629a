"""A run over its batches: its options, checkpoint, sinks, observers and limits. May import `batch`."""
