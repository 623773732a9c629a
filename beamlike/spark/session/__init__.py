"""Spark's session, its Java, and the code for its workers.

May import what `spark` may.
"""
