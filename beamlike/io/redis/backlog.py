"""Event times of messages that are unread, or delivered to other consumers. The watermark must not pass them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import polars as pl

from beamlike.io.redis.client import AT_ONCE, ConsumerGroup, Entry
from windowing.columns import EVENT_TIME

AHEAD: Final = 100_000
"""The greatest number of unread messages that are examined in advance."""

Times = Callable[[Sequence[Entry]], pl.Series]
"""Returns the event times (us) of messages; null if a message has none."""


@attrs.define(eq=False)
class Backlog:
    """The event times of messages that are not acknowledged yet. Each message is examined once."""

    _ahead: pl.DataFrame = attrs.field(init=False)
    _looked: str = attrs.field(default="", init=False)
    _with_others: dict[str, int | None] = attrs.field(factory=dict, init=False)
    newest: int | None = attrs.field(default=None, init=False)
    """The newest event time of all examined messages."""

    def __attrs_post_init__(self) -> None:
        schema = {"ms": pl.Int64, "sequence": pl.UInt64, EVENT_TIME: pl.Int64}
        self._ahead = pl.DataFrame(schema=schema)

    def oldest(self, group: ConsumerGroup, consumer: str, times: Times) -> int | None:
        """Returns the oldest event time (us) of messages that are not acknowledged.

        Messages that were delivered to this consumer do not count.
        """
        delivered = group.delivered() or "0-0"
        self._look(group, delivered, times)
        self._ask(group, consumer, times)
        found = [time for time in self._with_others.values() if time is not None]
        ahead = self._ahead[EVENT_TIME].min()
        return min(found if ahead is None else [*found, int(str(ahead))], default=None)

    def _look(self, group: ConsumerGroup, delivered: str, times: Times) -> None:
        """Examines messages that were added to the stream since the last call."""
        ms, sequence = _place(delivered)
        later = (pl.col("ms") > ms) | ((pl.col("ms") == ms) & (pl.col("sequence") > sequence))
        self._ahead = self._ahead.filter(later)
        looked = max(self._looked or delivered, delivered, key=_place)
        while len(self._ahead) < AHEAD and (entries := group.after(looked, AT_ONCE)):
            looked = entries[-1][0]
            schema = {name: self._ahead.schema[name] for name in ("ms", "sequence")}
            places = pl.DataFrame([_place(name) for name, _ in entries], schema=schema, orient="row")
            found = times(entries)
            self.update(found)
            self._ahead = pl.concat([self._ahead, places.with_columns(found.alias(EVENT_TIME))])
        self._looked = looked

    def _ask(self, group: ConsumerGroup, consumer: str, times: Times) -> None:
        """Examines messages that were delivered to other consumers and are not acknowledged."""
        names = [name for other in group.others(consumer) for name in group.pending(other, AT_ONCE)]
        new = group.entries([name for name in names if name not in self._with_others])
        known = {**self._with_others, **dict(zip((name for name, _ in new), times(new), strict=True))}
        self._with_others = {name: known[name] for name in names if name in known}

    def update(self, times: pl.Series) -> None:
        """Updates the newest event time with these times."""
        known = [*times.drop_nulls().sort().tail(1), *([] if self.newest is None else [self.newest])]
        self.newest = max(known, default=None)


def _place(name: str) -> tuple[int, int]:
    ms, _, sequence = name.partition("-")
    return int(ms), int(sequence or 0)
