"""The input of a batch of an earlier run, read again for the engine."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from beamlike.errors import InputGone
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.loop.batch_input import BatchInput, read_whole, step_input
from beamlike.runtime.loop.prefetch import ingest_all
from beamlike.runtime.recorded.batches import STEPS, RecordedBatch
from beamlike.runtime.recorded.reading import read_again
from beamlike.runtime.recorded.taken import StepTaken
from beamlike.system.threads import ALONE
from windowing.time import MIN_TIME


def input_again(plan: Plan, batch: RecordedBatch) -> BatchInput:
    """Reads what a batch took from the sources of the plan again, and ingests it at the processing time of the batch.

    Raises `InputGone`, which names the batch and the source, if that is not possible.
    """
    steps = steps_of(plan)
    if steps is not None:
        taken = batch.taken.get(STEPS)
        if not isinstance(taken, StepTaken):
            # On Spark, the end of all streams is a command of its own.
            return step_input(plan, steps, steps, partial(int, batch.now))
        return step_input(plan, taken.step, steps, partial(int, batch.now))
    if STEPS in batch.taken:
        raise InputGone(batch.number, STEPS, "the run played test streams, and the pipeline has none")
    with ExitStack() as held:
        chunks = read_again(plan, batch, held)
        ingested = ingest_all(plan, chunks, batch.now, ALONE)
    return BatchInput(
        ingested,
        dict.fromkeys(plan.sources, batch.now),
        batch.now,
        ended=batch.ended,
        waiting=batch.waiting,
        started=MIN_TIME if batch.started is None else batch.started,
        over=read_whole(plan) | batch.over,
    )
