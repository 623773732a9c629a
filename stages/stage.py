"""A stage of a pipeline: the grouping over its state, `(state, arrivals, clock) -> (state, panes, output watermark)`.

Rows are spread over buckets, and a step reads only those that arrivals touch or in which a window is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import polars as pl
from windowing.columns import WINDOW_END
from windowing.triggers import Moment

from stages.grouping import Advanced, Grouping
from stages.index import BUCKET, Holder, Index, summarize
from stages.keys import bucket_of
from stages.rows import HOLD
from stages.state import StateStore, decode, encode
from stages.watermarks import Clock, Times, Watermarks, advance_percentiles

KEY_BUCKETS: Final = 8
"""Buckets by key: a step that touches all keys then makes some twenty round trips to the store."""

TIME_BUCKETS: Final = 64
"""Buckets by window end, taken in turn: live windows seldom meet in one, and there are never more."""


@attrs.frozen
class Step:
    """What a step of a stage gives. `holder` is the key and window with the least hold.

    `live` counts rows of state, `keys` their keys and `bytes` what they take. `late` has the arrivals that were
    dropped, if the grouping shows them; `percentiles` are those of the output watermark.
    """

    panes: pl.DataFrame
    watermarks: Watermarks
    dropped: dict[str, int]
    holder: Holder | None
    elements: int
    live: int
    keys: int
    bytes: int
    late: pl.DataFrame
    percentiles: Mapping[int, int]


@attrs.frozen
class Stage:
    """A named grouping. Its name is the name of its state."""

    name: str
    grouping: Grouping

    def step(self, store: StateStore, arrivals: pl.DataFrame, clock: Clock) -> Step:
        """One bundle: `arrivals` are processed with the watermarks of the step before, then the clock moves.

        `arrivals` has the grouping's columns, the event time, and window bounds if windows are assigned already.
        A clock that is behind changes nothing; watermarks never go back.
        """
        try:
            return self._step(store, arrivals, clock)
        except Exception as error:  # It may be a user's CombineFn that failed.
            error.add_note(f"in step {self.name!r}")
            raise

    def _step(self, store: StateStore, arrivals: pl.DataFrame, clock: Clock) -> Step:
        index = Index.load(store, self.name, self.grouping.clocks())
        before, now = index.watermarks, index.times.advance(clock)
        admitted = self.grouping.admit(arrivals, before)
        buckets = self._touched(index, admitted.incoming, now)
        rows = self._load(store, index, buckets)
        advanced = self.grouping.advance(rows, admitted, before, index.times, now)
        index = self._save(store, index, buckets, advanced, now)
        holder = index.holder
        hold = None if holder is None else holder.hold
        watermarks = before.advance([clock.watermark], hold)
        percentiles = advance_percentiles(index.percentiles, now.percentiles, hold)
        attrs.evolve(index, watermarks=watermarks, percentiles=percentiles, times=now).save(store, self.name)
        return Step(
            advanced.panes,
            watermarks,
            dict(advanced.dropped),
            holder,
            len(arrivals),
            index.rows,
            index.keys,
            index.bytes,
            advanced.late,
            percentiles,
        )

    def _bucket(self) -> pl.Expr:
        """Windows that are the same for all keys are spread by their end, others by key."""
        windows = self.grouping.windowing.windows
        if windows.span is None:
            return bucket_of(self.grouping.keys, KEY_BUCKETS)
        step = windows.period or windows.span
        live = windows.span + self.grouping.windowing.allowed_lateness
        width = -(-live // KEY_BUCKETS // step) * step
        return pl.col(WINDOW_END) // width % TIME_BUCKETS

    def _touched(self, index: Index, incoming: pl.DataFrame, now: Times) -> list[int]:
        arriving = (
            incoming.select(self._bucket().unique().alias(BUCKET))[BUCKET].to_list() if len(incoming) else []
        )
        return sorted({*arriving, *index.due(now)})

    def _load(self, store: StateStore, index: Index, buckets: list[int]) -> pl.DataFrame:
        schema = self.grouping.layout.state
        existing = set(index.existing())
        values = [store.get(self.name, _rows_key(bucket)) for bucket in buckets if bucket in existing]
        frames = [decode(value)[0] for value in values if value is not None]
        return pl.concat([pl.DataFrame(schema=schema), *frames])

    def _save(
        self, store: StateStore, index: Index, buckets: list[int], advanced: Advanced, now: Times
    ) -> Index:
        """Writes the buckets that the step has read, and describes them in the index."""
        rows = advanced.rows.with_columns(self._bucket().alias(BUCKET))
        parts = rows.partition_by(BUCKET, as_dict=True, include_key=False)
        sizes = {}
        for bucket in buckets:
            part = parts.get((bucket,))
            if part is not None:
                value = encode(part)
                sizes[bucket] = len(value)
                store.put(self.name, _rows_key(bucket), value)
            elif bucket in index.existing():
                store.delete(self.name, _rows_key(bucket))
        moment = Moment(now.times, self.grouping.merging)
        deadlines = {clock: self.grouping.deadline(moment, clock) for clock in self.grouping.clocks()}
        return index.replace(buckets, summarize(rows, self.grouping.keys, deadlines, HOLD, sizes))


def _rows_key(bucket: int) -> str:
    return f"rows/{bucket}"
