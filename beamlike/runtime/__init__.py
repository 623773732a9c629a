"""The parts of a run that both runners share: ingestion, steps of stages, sinks, limits, records of batches.

May import `plan` and all below it.
"""
