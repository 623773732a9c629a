"""The state of shards in files of the checkpoint, instead of in Spark's state store.

May import what `spark` may, but no pyspark.
"""
