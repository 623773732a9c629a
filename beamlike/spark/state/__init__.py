"""The state of shards in files of the checkpoint, instead of in Spark's state store. It imports no pyspark.

May import what `spark` may.
"""
