"""The session of Spark, its Java, and the code for its workers.

May import what `spark` may.
"""
