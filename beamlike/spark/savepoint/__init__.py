"""Savepoints of runs on Spark.

May import what `spark` may.
"""
