"""Spark operators for the levels: one `transformWithStateInPandas` each, with its state in one MapState of bytes.

If processing time must pass without input, the level has a timer per shard, which is due in the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import attrs
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from beamlike.runtime.batch.envelope import ARROW, Envelope
from beamlike.spark.query.applied import ENVELOPES
from beamlike.spark.query.level import Level
from beamlike.spark.query.parts import PartWriter
from beamlike.spark.query.task_activity import query_of
from beamlike.spark.session.loading import packed
from beamlike.spark.session.workers import settle
from stages.state.chunks import is_chunk

_FRAME_BYTES = 64_000_000

# Built as objects: for a schema given as text, each task would need two more round trips to the JVM.
_KEY = StructType([StructField("key", StringType())])
_VALUE = StructType([StructField("value", BinaryType())])


@attrs.frozen
class MapStateStore:
    """A StateStore in the MapState of one shard. `met` has names that had a value when they were last read."""

    state: Any
    met: set[str] = attrs.field(factory=set)

    @property
    def compress_from(self) -> int:
        return 0

    def get(self, stage: str, key: str) -> bytes | None:
        # Spark logs a warning for each missing value that is read. A chunk is never missing, because an index
        # names it. A name that an earlier batch has read is missing only if that batch failed.
        name = f"{stage}/{key}"
        if not is_chunk(key) and name not in self.met:
            if not self.state.containsKey((name,)):
                return None
            self.met.add(name)
        found = self.state.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.state.updateValue((f"{stage}/{key}",), (value,))

    def delete(self, stage: str, key: str) -> None:
        self.met.discard(f"{stage}/{key}")
        self.state.removeKey((f"{stage}/{key}",))


@lru_cache(maxsize=64)
def _met(query: str | None, level: str, label: int) -> set[str]:
    """Returns the names that this process has read in the state of a shard of a query."""
    return set()


Tracked = Callable[[], AbstractContextManager[None]]
"""Creates a context manager around a task, which tracks the task's activity."""


@attrs.frozen
class LevelOperator:
    """The operator of a level, which Spark calls once per shard and batch if the shard has received envelopes."""

    level: Level
    writer: PartWriter | None
    ticks: bool
    tracked: Tracked = nullcontext

    def rows(
        self,
        handle: StatefulProcessorHandle,
        state: Any,
        label: int,
        frames: Iterable[pd.DataFrame],
        timer_values: Any,
    ) -> Iterator[pd.DataFrame]:
        """Runs a batch on a shard with the envelopes in `frames`. Yields the envelopes that the shard sends."""
        if self.ticks:
            # If a timer is due in the same batch, it would run the level a second time.
            for timer in list(handle.listTimers()):
                handle.deleteTimer(timer)
        arrived = (envelope for frame in frames for envelope in _envelopes(frame))
        yield from self.run(handle, state, label, arrived, timer_values)

    def run(
        self,
        handle: StatefulProcessorHandle,
        state: Any,
        label: int,
        arrived: Iterable[Envelope],
        timer_values: Any,
    ) -> Iterator[pd.DataFrame]:
        """Runs a batch on a shard, with or without arrived envelopes. Yields the envelopes that the shard sends."""
        now = None
        if self.ticks and self.level.stages_on(label):
            # This is the time of the batch, as in summaries. It is the same on each shard, and in a replay.
            milliseconds = timer_values.getCurrentProcessingTimeInMs()
            handle.registerTimer(milliseconds + 1)
            now = 1000 * milliseconds
        met = _met(query_of(TaskContext.get()), self.level.stages[0].name, label)
        sent = self.level.run(label, arrived, MapStateStore(state, met), now)
        if self.writer is not None:
            sent = self.writer.write(sent, self.level.topology.labels.index(label))
        with self.tracked():
            yield from _frames(sent)
        settle(type(self).__name__)


def on_demand(operator: LevelOperator) -> StatefulProcessor:
    """Wraps the operator for Spark, so that it is loaded only when the first rows arrive.

    Before the first batch, Spark starts a Python process on the driver to ask for the state of each level. With the
    operator itself, each of these processes would load all libraries. A class that is defined in a function is pickled
    with its code, so that not even this module is loaded.
    """
    load = packed(operator)

    class OnDemand(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.state = handle.getMapState("state", _KEY, _VALUE)

        def handleInputRows(
            self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
        ) -> Iterator[pd.DataFrame]:
            return self.operator().rows(self.handle, self.state, int(key[0]), rows, timerValues)

        def handleExpiredTimer(
            self, key: Any, timerValues: Any, expiredTimerInfo: Any
        ) -> Iterator[pd.DataFrame]:
            return self.operator().run(self.handle, self.state, int(key[0]), (), timerValues)

        def operator(self) -> LevelOperator:
            loaded: LevelOperator = load()
            return loaded

        def close(self) -> None:
            """Does nothing, as nothing is open."""

    return OnDemand()


def _envelopes(frame: pd.DataFrame) -> Iterator[Envelope]:
    columns = [frame[name].tolist() for name in ARROW.names]
    for shard, target, origin, kind, sequence, payload in zip(*columns, strict=True):
        yield Envelope(shard, target, origin, kind, sequence, payload)


def _frames(envelopes: Iterable[Envelope]) -> Iterator[pd.DataFrame]:
    """Yields frames of several megabytes with envelopes. Arrow can store at most 2 GB of payloads in one frame."""
    held: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        held.append(envelope.sealed())
        size += len(held[-1].payload)
        if size > _FRAME_BYTES:
            yield _frame(held)
            held, size = [], 0
    if held:  # Spark cannot find the types of a frame without rows
        yield _frame(held)


def _frame(envelopes: list[Envelope]) -> pd.DataFrame:
    columns = {name: [getattr(envelope, name) for envelope in envelopes] for name in ARROW.names}
    return pd.DataFrame(columns).astype({"shard": "int32", "sequence": "int64"})


def apply_level(
    envelopes: DataFrame,
    level: Level,
    writer: PartWriter | None,
    *,
    ticks: bool,
    tracked: Tracked = nullcontext,
) -> DataFrame:
    """Returns the stream of envelopes after one level. Only the last level has a `writer`. `tracked` tracks its tasks.

    With `ticks`, processing time passes without input: Spark then runs batches continuously.
    """
    return envelopes.groupBy("shard").transformWithStateInPandas(
        on_demand(LevelOperator(level, writer, ticks, tracked)),
        outputStructType=ENVELOPES,
        outputMode="Append",
        timeMode="ProcessingTime" if ticks else "None",
    )
