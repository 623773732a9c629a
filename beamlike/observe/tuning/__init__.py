"""Predictions, from the records of a run, of what other bounds of a source's watermark would lose and delay.

May import what `observe` may.
"""
