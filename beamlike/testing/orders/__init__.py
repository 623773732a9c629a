"""Plays a pipeline with rows in orders of arrival that its watermarks allow, and compares the final results.

May import what `testing` may.
"""
