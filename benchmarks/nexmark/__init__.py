"""Nexmark, the benchmark of stream engines: an online auction, and 23 queries on its events."""
