"""The flagship job on both runners, compared with the same job written by hand in native Structured Streaming."""
