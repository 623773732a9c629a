"""The ways in which a plan is played: in one run, in two with a stop between, or on several shards."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import polars as pl

from beamlike.errors import MissingPackage
from beamlike.io import Memory
from beamlike.io.base import output_frame, output_schema
from beamlike.local.runner import LocalRunner
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord
from beamlike.testing.orders.arrivals import NOW
from beamlike.testing.orders.bundles import Bundles

SHARDS: Final = 7
"""The number of shards of some runs. Others have one."""

_TASKS: Final = 2

Rows = Mapping[str, Sequence[pl.DataFrame]]
"""The rows of each source in each batch, equally many for all sources."""


@attrs.frozen
class Course:
    """A way to play a plan: the number of batches after which the run is stopped, if it is, and the number of shards.

    `seed` chooses the order in which the messages of a batch reach the shards.
    """

    stop: int | None = None
    shards: int = 1
    seed: int = 0

    def __str__(self) -> str:
        if self.shards > 1:
            return f"the run had {self.shards} shards"
        return "" if self.stop is None else f"the run was stopped after {self.stop} batches and continued"

    def play(self, plan: Plan, rows: Rows) -> dict[str, pl.DataFrame]:
        """Plays a plan with these rows in place of its sources. Returns the rows of each sink."""
        if self.shards > 1:
            return _on_shards(plan, rows, self)
        sinks = {name: Memory() for name in plan.sinks}
        plan = attrs.evolve(
            plan,
            sources={
                name: attrs.evolve(source, source=Bundles(tuple(rows[name])))
                for name, source in plan.sources.items()
            },
            sinks={name: attrs.evolve(sink, sink=sinks[name]) for name, sink in plan.sinks.items()},
        )
        if self.stop is None:
            LocalRunner(clock=_clock, quiet=True).run(plan)
        else:
            _run_in_two(plan, self.stop)
        return {name: sink.frame() for name, sink in sinks.items()}


def can_shard() -> bool:
    """True if the code that runs on Spark is there. Without PySpark, a pipeline has one shard only."""
    try:
        import beamlike.testing.shards  # noqa: F401
    except MissingPackage:
        return False
    return True


def _on_shards(plan: Plan, rows: Rows, course: Course) -> dict[str, pl.DataFrame]:
    from beamlike.testing.shards import ShardedRun, frames_of

    run = ShardedRun(plan, course.shards, _TASKS, course.seed)
    whole = {name for name, source in plan.sources.items() if source.whole}
    found = {name: [pl.DataFrame(schema=output_schema(sink.schema))] for name, sink in plan.sinks.items()}
    batches = max(map(len, rows.values()))
    for number in range(batches + 1):
        # What is read as a whole is in the first batch, and ends there.
        chunks = {name: rows[name][number] for name in rows if name not in whole and number < batches}
        if number == 0:
            chunks |= {name: pl.concat(rows[name]) for name in whole}
        sent = run.ingested({name: chunk.lazy() for name, chunk in chunks.items()}, NOW)
        over = whole if number == 0 else set() if number < batches else plan.sources
        *_, last = run.through([*sent, *run.end(over, NOW)])
        for name, parts in found.items():
            if frames := frames_of(last, name):
                parts.append(output_frame(pl.concat(frames)))
    return {name: pl.concat(parts) for name, parts in found.items()}


def _run_in_two(plan: Plan, stop: int) -> None:
    """Runs a plan with a checkpoint, stops it after so many batches, and continues it to the end."""
    with tempfile.TemporaryDirectory() as folder:
        seen = 0

        def stop_now(record: BatchRecord) -> None:
            nonlocal seen
            seen += 1
            if seen == stop:
                live.stop()

        checkpoint = str(Path(folder) / "checkpoint")
        live = LocalRunner(clock=_clock, quiet=True, checkpoint=checkpoint, on_batch=stop_now).start(plan)
        live.wait()
        LocalRunner(clock=_clock, quiet=True, checkpoint=checkpoint, drain=True).run(plan)


def _clock() -> int:
    return NOW
