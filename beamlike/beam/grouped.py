"""A GroupByKey of a Beam pipeline, as a windowed grouping of the engine."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import polars as pl
from apache_beam.coders.coder_impl import PaneInfoCoderImpl, create_InputStream
from apache_beam.portability import common_urns
from apache_beam.utils import windowed_value

from beamlike.beam.nodes import readable
from beamlike.beam.strategies import bounds, coder_text, described, end_of, interval, windowing_of, windows_of
from beamlike.expressions.describe import windowing_choices
from stages.aggregates.builtin import Collect, Min
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage, StageResult
from stages.state.index import HoldOwner
from stages.state.store import StateStore
from windowing.clocks import PROCESSING_TIME, Times
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

KEY: Final = "key"
VALUE: Final = "value"
WINDOW: Final = "window"
SEQUENCE: Final = "sequence"
"""A column with the number of an element in order of arrival."""
_TIMES: Final = (EVENT_TIME, WINDOW_START, WINDOW_END)
_TIMINGS: Final = {"early": 0, "on_time": 1, "late": 2}


class GroupNode:
    """A grouping with its state: reads encoded keyed elements, and emits encoded panes.

    Windows that are no intervals are encoded, and are one more key column.
    """

    def __init__(self, name: str, context: Any, collection: str, buffer: bytes, store: StateStore) -> None:
        self.key, self.label, self.buffer, self.store = name, name, buffer, store
        components, built = context.pipeline_components, context.pipeline_context
        coder = built.coders[context.safe_coders[context.data_channel_coders[collection]]]
        self.coder = coder.get_impl()
        self.coder_text = coder_text(components.coders, context.data_channel_coders[collection])
        self.key_coder = coder.key_coder().get_impl()
        self.shown_key_coder = built.coders[context.data_channel_coders[collection]].key_coder().get_impl()
        self.value_coder = coder.value_coder().get_impl()
        self.window_coder = coder.window_coder.get_impl()
        strategy_id = components.pcollections[collection].windowing_strategy_id
        proto = components.windowing_strategies[strategy_id]
        urn = components.coders[proto.window_coder_id].spec.urn
        self.is_global = urn == common_urns.coders.GLOBAL_WINDOW.urn
        self.is_interval = urn == common_urns.coders.INTERVAL_WINDOW.urn
        windowing = windowing_of(proto, windows_of(proto, urn, built, strategy_id))
        self.windowing = described(windowing, built.windowing_strategies.get_by_id(strategy_id).windowfn)
        keys = (KEY,) if self.is_global or self.is_interval else (KEY, WINDOW)
        schema = {**dict.fromkeys((*keys, VALUE), pl.Binary()), SEQUENCE: pl.Int64()}
        self.schema = pl.Schema({**schema, **dict.fromkeys(_TIMES, pl.Int64())})
        aggregates = {VALUE: Collect(VALUE), SEQUENCE: Min(SEQUENCE)}
        self.stage = Stage(name, Grouping(keys, windowing, aggregates, pl.Schema(schema)))
        self.panes_coder = PaneInfoCoderImpl()
        self.pending: list[bytes] = []
        self.output, self.seen = MIN_TIME, 0
        self.clock: tuple[int, int] | None = None
        self.done: StageResult | None = None
        self.held: HoldOwner | None = None

    def described(self) -> dict[str, str]:
        """Returns a description that a checkpoint compares: the windows, triggers and coders."""
        name = self.key.removeprefix("ref_AppliedPTransform_")
        chosen = ", ".join(f"{what} {value}" for what, value in windowing_choices(self.windowing).items())
        return {f"the grouping {name!r}": f"{chosen}, encoded as {self.coder_text}"}

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains, besides the state."""
        yield "watermark", (self.output, self.seen)
        yield "pending", self.pending

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.output, self.seen = saved["watermark"]
        self.pending = saved["pending"]

    def holder(self) -> HoldOwner | None:
        """Returns the key and window that hold the output watermark; None if none does."""
        return readable(self.held, self.shown_key_coder.decode_nested)

    def step(self, watermark: int, processing_time: int) -> bytes:
        """Groups the pending elements, then advances the clocks (us). Returns the encoded panes."""
        if PROCESSING_TIME not in self.stage.operator.clocks:
            processing_time = 0
        if not self.pending and self.clock == (watermark, processing_time):
            return b""
        self.clock = (watermark, processing_time)
        chunks, self.pending = self.pending, []
        arrivals = {MAIN: self.arrivals(chunks)}
        done = self.done = self.stage.step(self.store, arrivals, Times.of(watermark, processing_time))
        self.held, self.output = done.holder, done.watermarks.output
        return self.encoded(done.panes)

    def arrivals(self, chunks: Iterable[bytes]) -> pl.DataFrame:
        """Decodes elements to a frame with a row for each window."""
        rows = list[tuple[Any, ...]]()
        for chunk in chunks:
            stream = create_InputStream(chunk)
            while stream.size() > 0:
                rows += self._rows(self.coder.decode_from_stream(stream, True), self.seen + len(rows))
        self.seen += len(rows)
        names = [KEY, VALUE, SEQUENCE, *_TIMES, *({WINDOW} & {*self.schema})]
        frame = pl.DataFrame(rows, {name: self.schema[name] for name in names}, orient="row")
        return frame.select(*self.schema)

    def _rows(self, element: Any, number: int) -> list[tuple[Any, ...]]:
        key, value = element.value
        encoded = self.key_coder.encode_nested(key), self.value_coder.encode_nested(value)
        return [
            (*encoded, number + place, element.timestamp_micros, *self._placed(window))
            for place, window in enumerate(element.windows)
        ]

    def _placed(self, window: Any) -> tuple[Any, ...]:
        """Returns the bounds of a window (us), and the encoded window if it is a key."""
        if self.is_global:
            return MIN_TIME, GLOBAL_WINDOW_END
        if self.is_interval:
            return bounds(window)
        return MIN_TIME, end_of(window), self.window_coder.encode_nested(window)

    def encoded(self, panes: pl.DataFrame) -> bytes:
        """Encodes panes as elements of the output, in the order in which their first elements have arrived."""
        return b"".join(map(self._encoded, self._ordered(panes)))

    def firings(self, panes: pl.DataFrame) -> list[tuple[bytes, bytes]]:
        """Encodes panes as elements like `encoded`, each with a digest that identifies its key and window."""
        return [(self._encoded(pane), self._digest(pane)) for pane in self._ordered(panes)]

    def _ordered(self, panes: pl.DataFrame) -> Iterator[dict[str, Any]]:
        return panes.sort(SEQUENCE, WINDOW_START, PANE_INDEX, nulls_last=True).iter_rows(named=True)

    def _digest(self, pane: dict[str, Any]) -> bytes:
        return blake2b(b"\n".join([self.buffer, self._window(pane), pane[KEY]]), digest_size=16).digest()

    def _encoded(self, pane: dict[str, Any]) -> bytes:
        """Encodes a pane as an element of the output: its time, window, pane info, key and values."""
        millis = max(pane[EVENT_TIME], MIN_TIME) // 1000
        values = pane[VALUE] or []
        info = windowed_value.PaneInfo(
            pane[PANE_FIRST],
            pane[PANE_LAST],
            _TIMINGS[pane[PANE_TIMING]],
            pane[PANE_INDEX],
            pane[PANE_NONSPECULATIVE_INDEX],
        )
        head = struct.pack(">Qi", millis + (1 << 63), 1)
        parts = [head, self._window(pane), self.panes_coder.encode(info), pane[KEY]]
        return b"".join([*parts, struct.pack(">i", len(values)), *values])

    def _window(self, pane: dict[str, Any]) -> bytes:
        if self.is_global:
            return b""
        if self.is_interval:
            encoded: bytes = self.window_coder.encode_nested(interval(pane[WINDOW_START], pane[WINDOW_END]))
            return encoded
        window: bytes = pane[WINDOW]
        return window
