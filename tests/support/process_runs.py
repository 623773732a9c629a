"""The process stage on several shards, with outcomes that compare with the steps of the model."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from tests.cases.case import Outcome, us
from tests.cases.process import StageRun, row_of, stage_of
from tests.support.model_calls import Row
from tests.support.process_script import Script
from tests.support.process_strategies import Bundle
from windowing.clocks import Times
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


class Shards:
    """The stage of a script on `count` shards."""

    def __init__(self, script: Script, count: int = 1) -> None:
        stage = stage_of(script)
        self.runs = [StageRun(stage) for _ in range(count)]
        self.clock = Times.of(MIN_TIME)

    def step(self, bundle: Bundle) -> Outcome:
        """Runs a bundle on all shards and returns their joint outcome."""
        self.clock = Times.of(
            self.clock.watermark if bundle.watermark is None else us(bundle.watermark),
            self.clock.processing_time if bundle.processing_time is None else us(bundle.processing_time),
        )
        given = [run.step(self._mine(bundle.rows, shard), self.clock) for shard, run in enumerate(self.runs)]
        return Outcome(
            [row for one in given for row in one.out],
            [value for one in given for value in one.late],
            [error for one in given for error in one.letters],
            min(one.output_watermark for one in given),
            sum(one.live for one in given),
        )

    def _mine(self, rows: Iterable[Row], shard: int) -> list[dict[str, Any]]:
        return [
            row_of({"key": row.key, "v": row.value, "at": row.time})
            for row in rows
            if zlib.crc32(row.key.encode()) % len(self.runs) == shard
        ]

    @property
    def least_hold(self) -> int | None:
        """The least hold of all shards (us)."""
        holders = [run.stage.tables(run.store).holder for run in self.runs]
        return min((holder.hold for holder in holders if holder is not None), default=None)

    @property
    def rows(self) -> int:
        """The number of rows in state, including waiting rows."""
        return sum(index.rows for run in self.runs for index in run.stage.tables(run.store).indices.values())


def play(run: Shards, stream: Sequence[Bundle]) -> list[Outcome]:
    """Returns the outcome of each step."""
    return [run.step(bundle) for bundle in stream]


def unordered(outcome: Outcome) -> Any:
    """Returns an outcome without order, for comparison; errors are reduced to their kinds, and the end has one time."""
    kinds = Counter(error.partition(":")[0] for error in outcome.letters)
    kinds["ValueError"] += kinds.pop("ResultError", 0)
    return attrs.evolve(
        outcome,
        out=sorted((value, min(time, GLOBAL_WINDOW_END - 1)) for value, time in outcome.out),
        late=sorted(outcome.late),
        letters=sorted(kinds.elements()),
    )
