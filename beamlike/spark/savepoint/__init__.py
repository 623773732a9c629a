"""Savepoints: the state of a run as files, and how another plan or number of shards takes it up.

May import what `spark` may.
"""

from beamlike.spark.savepoint.savepoint import restore, save

__all__ = ["restore", "save"]
