"""The session of Spark, the Java below it, and the code that goes to its workers.

May import what `spark` may.
"""
