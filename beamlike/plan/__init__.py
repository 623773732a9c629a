"""The plan: a pipeline cut into sources, stages and sinks, its text, and its manifest.

May import `logical` and all below it.
"""
