"""What both runners do: ingest, stage steps, sinks, limits, and what is told of them.

May import `plan` and all below it.
"""
