"""A run: its options, checkpoint, sinks, observers and limits. May import `batch` and all below it."""
