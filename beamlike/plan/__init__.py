"""The compiled plan of a pipeline: sources, stages and sinks; its description as text, and its manifest.

May import `logical` and all below it.
"""
