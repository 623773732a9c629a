"""Keyed state and timers."""

# pyright: strict

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

import polars as pl

import beamlike as bl
from tests.typing.project.sources import scores

Row = dict[str, Any]


class Everything(bl.Process):
    """A process with a field of each kind and a timer of each kind."""

    n = bl.Value(int, default=0)
    share = bl.Value(float, default=0, ttl="1h", by="processing")
    since = bl.Value(datetime)
    names = bl.Value(list[str], default=[])
    last_row = bl.Value({"user": str, "points": int})
    anything = bl.Value(object)
    wide = bl.Value(pl.Decimal(38, 2), default=Decimal(0))
    recent = bl.List(str, ttl="1d")
    rows = bl.List({"user": str, "points": int})
    seen = bl.Set(str)
    by_user = bl.Map(str, int)
    structs = bl.Map(str, {"points": int})
    prices = bl.OrderedList(float)
    total = bl.Combining(bl.sum("points"))
    quiet = bl.EventTimer(at_end="drop")
    flush = bl.ProcessingTimer(hold=True)
    retry = bl.EventTimers()
    ping = bl.ProcessingTimers()

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def element(self, row: Row) -> Iterator[Row | bl.TimestampedValue]:
        self.n += 1
        self.share = self.n / self.limit
        self.since = self.time
        self.recent.append(row["user"])
        self.rows.append(row)
        self.seen.add(row["user"])
        self.by_user[row["user"]] = self.by_user.get(row["user"], 0) + 1
        self.prices.add(self.time, 1.5)
        self.total.add(row)
        if self.quiet.pending() is None:
            self.quiet.after("10m", output=self.time)
        self.flush.at(self.processing_time + timedelta(minutes=1))
        self.retry.after("5s", tag=row["user"])
        self.ping.at(self.processing_time, tag="a")
        yield {"user": self.key.user, "n": self.n}
        yield bl.TimestampedValue({"user": "late", "n": 0}, self.time + timedelta(hours=1))

    def on_quiet(self) -> Iterator[Row]:
        assert_type(self.n, int)
        assert_type(self.share, float)
        assert_type(self.since, datetime | None)
        assert_type(self.names, list[str])
        assert_type(self.last_row, dict[str, Any] | None)
        assert_type(self.recent, list[str])
        assert_type(self.rows, list[dict[str, Any]])
        assert_type(self.seen, set[str])
        assert_type(self.by_user, dict[str, int])
        assert_type(self.prices.range(self.since), list[tuple[datetime, float]])
        yield {"user": self.key.user, "n": self.total.read()}
        self.total.clear()
        self.n = 0
        self.since = None
        del self.last_row

    def on_flush(self) -> None:
        self.retry.clear("a")
        self.ping.clear()
        self.flush.clear()

    def on_retry(self, tag: str) -> Iterator[Row]:
        yield {"user": tag, "n": len(self.prices) + len(self.structs)}

    def on_ping(self, tag: str) -> None:
        if not (self.late or self.retracted or self.at_end) and self.window is not None:
            assert_type(self.window.start, datetime)
            self.anything = [tag, self.watermark, self.wide]

    def expire(self) -> Iterator[Row]:
        yield {"user": self.key.user, "n": self.n}


class Annotated(bl.Process):
    """A process whose fields are annotated, so that pyright compares all that is assigned to them."""

    items: bl.List[int] = bl.List(int)
    best: bl.Value[int | None] = bl.Value(int)
    quiet: bl.EventTimer = bl.EventTimer()

    def element(self, row: Row) -> None:
        self.items = []
        self.best = max(self.best or 0, row["points"])
        self.quiet.after("1m")

    def on_quiet(self) -> Iterator[Row]:
        yield {"best": self.best, "n": len(self.items)}


def visits(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    new = rows.group_by("user").agg(n=pl.len().cast(pl.Int64), event_time=pl.col("event_time").max())
    return new.select("user", "n", "event_time"), new.select("user", "n", quiet="event_time")


def declared(p: bl.Pipeline) -> None:
    keyed = scores(p).group_by("user")
    schema = {"user": str, "n": int}
    assert_type(keyed.process(Everything(3), schema, order="arrival", keep_forever=True), bl.Collection)
    keyed.process(Annotated(), {"best": int, "n": int}, retractions=True)
    keyed.process_batches(visits, schema, state={"n": int}, timers={"quiet": bl.EventTimer()})
    keyed.process_batches(visits, schema, state={"n": int}, order="arrival", retractions=True)
    keyed.running(n=bl.count(), before=bl.previous("points"), order="time")
