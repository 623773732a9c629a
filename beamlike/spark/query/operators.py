"""Spark operators for the levels: a `transformWithState` each, with its state in one MapState of bytes. With one shard,
a single operator runs all levels.

If processing time must pass without input, the first level has a timer per shard, which is due in the next batch.

The last operator exchanges rows with Spark, which spares its workers the import of pandas. Spark makes one Arrow batch
of all rows that a shard sends, which can store at most 2 GB of payloads. All that the last operator sends is collected
by the driver anyway. Earlier operators may send more, so they exchange frames of pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from beamlike.plan.model import Plan
from beamlike.runtime.batch.envelope import ARROW, Envelope, in_batches
from beamlike.spark.query.applied import ENVELOPES
from beamlike.spark.query.level import Level
from beamlike.spark.query.parts import PartWriter
from beamlike.spark.query.task_activity import query_of
from beamlike.spark.session.loading import packed
from beamlike.spark.session.workers import settle
from beamlike.spark.versions import require_row_operators
from stages.state.chunks import is_chunk
from stages.state.memory import D

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

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

    @property
    def remembers(self) -> bool:
        return False

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

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        # The next batch of this shard may be processed by another worker, so nothing is remembered.
        value = self.get(stage, key)
        return None if value is None else decode(value)


@lru_cache(maxsize=64)
def _met(query: str | None, level: str, label: int) -> set[str]:
    """Returns the names that this process has read in the state of a shard of a query."""
    return set()


Tracked = Callable[[], AbstractContextManager[None]]
"""Creates a context manager around a task, which tracks the task's activity."""


@attrs.frozen
class LevelOperator:
    """The operator of one level or, with one shard, of all levels. Spark calls it once per shard and batch if the shard
    has received envelopes.

    `in_rows`: it exchanges rows with Spark, else frames of pandas.
    """

    levels: tuple[Level, ...]
    writer: PartWriter | None
    ticks: bool
    tracked: Tracked = nullcontext
    in_rows: bool = attrs.field(default=False, kw_only=True)

    def rows(
        self,
        handle: StatefulProcessorHandle,
        state: Any,
        label: int,
        arrived: Iterable[Any],
        timer_values: Any,
    ) -> Iterator[Any]:
        """Runs a batch on a shard with the envelopes in these rows or frames. Yields what the shard sends, likewise."""
        if self.ticks:
            # If a timer is due in the same batch, it would run the level a second time.
            for timer in list(handle.listTimers()):
                handle.deleteTimer(timer)
        envelopes = _from_rows(arrived) if self.in_rows else _from_frames(arrived)
        yield from self.run(handle, state, label, envelopes, timer_values)

    def run(
        self,
        handle: StatefulProcessorHandle,
        state: Any,
        label: int,
        arrived: Iterable[Envelope],
        timer_values: Any,
    ) -> Iterator[Any]:
        """Runs a batch on a shard, with or without arrived envelopes. Yields the envelopes that the shard sends."""
        now = None
        first = self.levels[0]
        if self.ticks and first.stages_on(label):
            # This is the time of the batch, as in summaries. It is the same on each shard, and in a replay.
            milliseconds = timer_values.getCurrentProcessingTimeInMs()
            handle.registerTimer(milliseconds + 1)
            now = 1000 * milliseconds
        store = MapStateStore(state, _met(query_of(TaskContext.get()), first.stages[0].name, label))
        sent = first.run(label, arrived, store, now)
        for level in self.levels[1:]:
            sent = level.run(label, sent, store)  # it receives the time with the reports of the first
        if self.writer is not None:
            sent = self.writer.write(sent, first.topology.labels.index(label))
        with self.tracked():
            yield from _rows(sent) if self.in_rows else map(_frame, in_batches(sent))
        settle(type(self).__name__)


def on_demand(operator: LevelOperator) -> StatefulProcessor:
    """Wraps the operator for Spark, so that it is loaded only when the first rows arrive.

    Before the first batch, Spark starts a Python process on the driver to ask for the state of each level. With the
    operator itself, each of these processes would load all libraries. A class that is defined in a function is pickled
    with its code, so that not even this module is loaded.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # Spark 3.5 has none

    load = packed(operator)

    class OnDemand(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.state = handle.getMapState("state", _KEY, _VALUE)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            return self.operator().rows(self.handle, self.state, int(key[0]), rows, timerValues)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            return self.operator().run(self.handle, self.state, int(key[0]), (), timerValues)

        def operator(self) -> LevelOperator:
            loaded: LevelOperator = load()
            return loaded

        def close(self) -> None:
            """Does nothing, as nothing is open."""

    return OnDemand()


_ROW = Row(*ARROW.names)


def _from_rows(rows: Iterable[Row]) -> Iterator[Envelope]:
    return (Envelope(*(row[name] for name in ARROW.names)) for row in rows)


def _rows(envelopes: Iterable[Envelope]) -> Iterator[Row]:
    for sent in envelopes:
        yield _ROW(sent.shard, sent.target, sent.origin, sent.kind, sent.sequence, sent.payload)


def _from_frames(frames: Iterable[pd.DataFrame]) -> Iterator[Envelope]:
    for frame in frames:
        columns = [frame[name].tolist() for name in ARROW.names]
        for shard, target, origin, kind, sequence, payload in zip(*columns, strict=True):
            yield Envelope(shard, target, origin, kind, sequence, payload)


def _frame(envelopes: list[Envelope]) -> pd.DataFrame:
    import pandas as pd

    columns = {name: [getattr(envelope, name) for envelope in envelopes] for name in ARROW.names}
    return pd.DataFrame(columns).astype({"shard": "int32", "sequence": "int64"})


Numbered = tuple[int, tuple[str, ...]]
"""The number of a level, from 1, and the names of its stages."""


def operators_of(plan: Plan, operators: int) -> Iterator[tuple[Numbered, ...]]:
    """Yields the levels of each operator of a query that has this number of operators."""
    numbered = tuple(enumerate(plan.levels, start=1))
    yield from [numbered] if operators < len(numbered) else ((level,) for level in numbered)


def apply_operator(
    envelopes: DataFrame,
    levels: Sequence[Level],
    writer: PartWriter | None,
    *,
    ticks: bool,
    rows: bool,
    tracked: Tracked = nullcontext,
) -> DataFrame:
    """Returns the stream of envelopes after an operator with these levels. Only the last one of a query has a `writer`,
    and may exchange `rows` with Spark. `tracked` tracks its tasks.

    With `ticks`, processing time passes without input: Spark then runs batches continuously.
    """
    shards = envelopes.groupBy("shard")
    if rows:
        require_row_operators()
    apply = shards.transformWithState if rows else shards.transformWithStateInPandas
    return apply(
        on_demand(LevelOperator((*levels,), writer, ticks, tracked, in_rows=rows)),
        outputStructType=ENVELOPES,
        outputMode="Append",
        timeMode="ProcessingTime" if ticks else "None",
    )
