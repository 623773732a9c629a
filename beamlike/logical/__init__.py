"""Declarations between the steps: where collections come from, how they are windowed and joined, and what must hold.

May import `steps`, `records` and all below them.
"""
