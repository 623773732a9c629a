"""Savepoints: the state of a run as files, and how another plan or number of shards takes it up."""
