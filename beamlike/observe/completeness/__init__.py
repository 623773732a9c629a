"""The completeness that panes stated, compared with what it really was; promises and their alerts.

May import what `observe` may.
"""
