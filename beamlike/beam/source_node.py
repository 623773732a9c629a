"""A source of this engine in a Beam pipeline that runs in process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

from apache_beam.internal import pickler
from apache_beam.runners.portability.fn_api_runner.translations import create_buffer_id, only_element

from beamlike.beam.columns import TakenRows
from beamlike.beam.nodes import Context
from beamlike.beam.phases import STREAM
from beamlike.beam.read import SOURCE, encoded_rows, planned
from beamlike.io.in_process import CHUNK_ROWS, Continued
from beamlike.local.engine import Engine
from beamlike.runtime.batch.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.loop.feed import InputFeed, open_feed
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.system.threads import ALONE
from stages.progress.inputs import Inputs
from stages.state.store import StateStore, Within
from windowing.time import MAX_TIME, MIN_TIME

_POLL: Final = 0.1
"""The time (s) after which a source without new rows is read again."""


class SourceNode:
    """A source whose rows are elements of a Beam collection: ends with a bounded source, otherwise never."""

    def __init__(
        self, context: Context, transform: Any, store: StateStore, now: Callable[[], int], held: ExitStack
    ) -> None:
        self.key = self.label = transform.unique_name
        self.collection = only_element(transform.outputs.values())
        self.buffer: bytes = create_buffer_id(self.collection, STREAM)
        coders = context.pipeline_context.coders
        self.coder = coders[context.data_channel_coders[self.collection]].get_impl()
        self.plan = planned(*pickler.loads(transform.spec.payload))
        self.source = self.plan.sources[SOURCE]
        if not isinstance(self.source.source, Continued):
            raise NotImplementedError(
                f"{self.label!r} reads a {type(self.source.source).__name__}, which has no resume(position, rows) or "
                "plan(position, rows); BeamlikeRunner(spark=bl.SparkRunner(...)) can read sources of Spark"
            )
        self.store, self.now, self.held, self.sink = Within(store, f"{self.key}/"), now, held, TakenRows()
        self.engine = Engine(self.plan, now, store=self.store)
        self.kept = Inputs()
        self.feed: InputFeed | None = None
        self.position: dict[str, Any] = {}
        self.watermark, self.number, self.started = MIN_TIME, 0, now()
        self.batch: LoggedBatch | None = None
        self.next_look = 0.0

    def described(self) -> dict[str, str]:
        """Returns a description that a checkpoint compares: the kind of the source, and its columns."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.source.schema.items())
        return {f"the source {self.key!r}": f"{type(self.source.source).__name__}, with {columns}"}

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains: the position, the watermark, and what it is derived from."""
        yield "position", (self.position, self.watermark, self.number)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.position, self.watermark, self.number = saved["position"]
        self.kept = self.engine.inputs[SOURCE] = load_inputs(SOURCE, self.store)

    @property
    def over(self) -> bool:
        """True if the source has ended."""
        return self.watermark >= MAX_TIME

    def wakes(self) -> list[float]:
        """Returns the times (s, of this machine) at which the source must be read again."""
        return [] if self.over else [self.next_look]

    def step(self) -> tuple[bytes, bool]:
        """Reads a batch. Returns its encoded elements, and true if there are some or the watermark has moved."""
        if self.over or time.time() < self.next_look:
            return b"", False
        if self.feed is None:
            self.feed = open_feed(
                self.plan,
                CHUNK_ROWS,
                self.now,
                position=lambda _: self.position,
                threads=ALONE,
                held=self.held,
            )
        found, now = self.feed.next(self.engine.inputs), self.now()
        if not found.taken:
            self.next_look = time.time() + _POLL
        ended = not found.taken and self.source.source.bounded
        self.batch = LoggedBatch(self.number, now, self.started, found.taken, ended=ended)
        record = self.engine.run(self.feed.read(self.batch), self.number, self.sink)  # type: ignore[arg-type]
        if record.errors:
            (error,) = record.errors.values()
            raise RuntimeError(f"Read {self.label!r}: a row cannot be used: {error}")
        for taken in found.taken.values():
            self.position |= taken.position
        self.number += bool(found.taken)
        if (inputs := self.engine.inputs[SOURCE]) != self.kept:
            self.kept = inputs
            keep_inputs(SOURCE, self.store, inputs)
        before, self.watermark = self.watermark, record.sources[SOURCE].watermark
        columns = [*self.source.schema, *self.source.system]
        encoded = b"".join(encoded_rows(self.coder, rows.select(columns)) for rows in self.sink.rows)
        return encoded, bool(encoded) or self.watermark != before

    def committed(self) -> None:
        """Notifies the source that its last batch is in the checkpoint."""
        if self.feed is not None and self.batch is not None:
            self.feed.committed(self.batch)
            self.batch = None
