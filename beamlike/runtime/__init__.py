"""The parts of a run that both runners share: its loop, ingestion, stage steps, sinks, limits and records.

May import `plan` and all below it.
"""
