"""Streams whose state is large and steady: a number of live (key, window) rows, and batches with random keys.

A batch spans one second of event time; live rows from before the first batch are older. About as many windows end in a
batch as begin, except for windows of a day, of which none ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
import polars as pl

import beamlike as bl
from windowing.triggers.base import Trigger
from windowing.windowing import Windowing

SECOND: Final = 1_000_000
START: Final = 1_767_272_400_000_000
"""Event time of the first batch: 2026-01-01 13:00 UTC, in microseconds. No day ends in the next eleven hours."""
SCHEMA: Final = pl.Schema({"user": pl.Int64(), "score": pl.Int64(), "event_time": pl.Datetime("us", "UTC")})

_CHUNK: Final = 1_000_000
_TOUCHES: Final = 2.0  # of a user while a session may still grow: 86 % of the users have a live session
_BUSY: Final = 10  # one live session of so many has had
_PLAYS: Final = 9  # so many plays before the first batch, the others one


@attrs.frozen
class Load:
    """A number of live (key, window) rows, and a number of arrivals in a batch."""

    rows: int
    arrivals: int


@attrs.frozen
class Workload:
    """A kind of windows over a stream of plays: user, score, event_time.

    `size` and `period` are the seconds of windows that are the same for all users, 0 for sessions. Windows of seconds
    end in every batch; they are kept for `lateness`, so that the requested number is live.
    """

    name: str
    size: int = 0
    period: int = 0
    early: int = 0

    @property
    def sessions(self) -> bool:
        return not self.size

    @property
    def ending(self) -> bool:
        """True if windows of fixed bounds end in every batch."""
        return self.period == 1

    @property
    def overlap(self) -> int:
        """The number of windows of a play."""
        return 1 if self.sessions else self.size // self.period

    def users(self, load: Load) -> int:
        """Returns the number of users from which batches draw."""
        if self.sessions:
            return round(load.rows / (1 - math.exp(-_TOUCHES)))
        return load.rows if self.ending else load.rows // self.overlap

    def gap(self, load: Load) -> int:
        """Returns the gap of sessions in microseconds: in this time, each user has `_TOUCHES` plays on average."""
        return round(_TOUCHES * self.users(load) / load.arrivals * SECOND)

    def lateness(self, load: Load) -> int:
        """Returns the microseconds that windows are kept after their end."""
        if not self.ending:
            return 0
        # Open windows have, on average, the rows of half a window's plays.
        seconds = load.rows / (load.arrivals * self.overlap) - (self.overlap + 1) / 2
        return max(0, round(seconds * SECOND))

    def windowing(self, load: Load) -> Windowing:
        trigger: Trigger = bl.DefaultTrigger()
        if self.early:
            trigger = bl.AfterWatermark(early=bl.AfterCount(self.early))
        if self.sessions:
            windows: bl.WindowFn = bl.Sessions(gap=f"{self.gap(load)}us")
        else:
            windows = bl.SlidingWindows(size=f"{self.size}s", period=f"{self.period}s")
            if self.overlap == 1:
                windows = bl.FixedWindows(f"{self.size}s")
        return Windowing(windows, trigger, allowed_lateness=f"{self.lateness(load)}us")

    def before(self, load: Load) -> Iterator[pl.DataFrame]:
        """Yields the plays that make the live rows, at most a million in a frame."""
        rng = np.random.default_rng(1)
        seconds = self.lateness(load) // SECOND + self.size
        count = load.arrivals * seconds if self.ending else load.rows // self.overlap
        for first in range(0, count, _CHUNK):
            user = np.arange(first, min(first + _CHUNK, count))
            if self.ending:
                age = (count - user) / count * seconds * SECOND
                user = rng.integers(0, self.users(load), len(user))
            elif self.sessions:
                # As long after the last play as a session gets that has not ended.
                share = 1 - rng.random(len(user)) * (1 - math.exp(-_TOUCHES))
                age = -np.log(share) / _TOUCHES * self.gap(load)
                repeats = np.where(user % _BUSY, 1, _PLAYS)
                user, age = np.repeat(user, repeats), np.repeat(age, repeats)
            else:
                age = rng.random(len(user)) * SECOND
            yield _plays(rng, user, START - 1 - age.astype(np.int64))

    def batch(self, load: Load, number: int) -> pl.DataFrame:
        """Returns the arrivals of batch `number`, from 0: random users, in the batch's second."""
        rng = np.random.default_rng(1000 + number)
        user = rng.integers(0, self.users(load), load.arrivals)
        return _plays(rng, user, START + number * SECOND + rng.integers(0, SECOND, load.arrivals))


def _plays(rng: np.random.Generator, user: np.ndarray, time: np.ndarray) -> pl.DataFrame:
    columns = {"user": user, "score": rng.integers(1, 100, len(user)), "event_time": time}
    return pl.DataFrame(columns, schema_overrides={"event_time": pl.Int64}).cast(dict(SCHEMA))


_DAY: Final = 86_400

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("fixed", size=_DAY, period=_DAY),
        Workload("sliding", size=4 * _DAY, period=_DAY),
        Workload("sessions"),
        Workload("sessions, early", early=10),
        Workload("fixed, ending", size=1, period=1),
        Workload("sliding, ending", size=4, period=1),
    )
}
