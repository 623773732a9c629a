"""Builds stages that have changed from the recorded input of a run, so that the run goes on with them.

May import what `replaying` may.
"""
