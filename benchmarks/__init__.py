"""The flagship job on both runners against the same job written by hand in native Structured Streaming."""
