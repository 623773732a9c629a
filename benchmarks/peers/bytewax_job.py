"""The flagship job in Bytewax: with its session windows, or with sessions computed by hand in its keyed state.

python bytewax_job.py [--by-hand] DATA OUT THREADS
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GAP = timedelta(seconds=60)
_GAP_MICROS = 60_000_000
_BOUND_MICROS = 5_000_000  # of the disorder
_ROWS = 50_000  # of a batch of the source
_NEVER = timedelta(days=1)  # between two snapshots: nothing would keep them
_SCHEMA = pa.schema(
    [("window_start", pa.timestamp("us", "UTC")), ("mean", pa.float64()), ("sessions", pa.int64())]
)


class Plays(StatefulSourcePartition[Any, None]):
    """Reads the files of one source in sequence: read in parallel, they would make plays of a user late.

    A play is its user and its time in microseconds. An integer costs less than a datetime.
    """

    def __init__(self, folder: Path) -> None:
        self._batches = self._read(folder)

    def _read(self, folder: Path) -> Iterator[list[tuple[str, int]]]:
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=["user", "event_time"]):
                users = batch.column("user").cast(pa.string()).to_pylist()  # a key must be text
                times = batch.column("event_time").cast(pa.int64()).to_pylist()
                yield list(zip(users, times, strict=True))

    def next_batch(self) -> list[tuple[str, int]]:
        return next(self._batches)  # StopIteration marks the end of a source

    def snapshot(self) -> None:
        return None


class Folder(FixedPartitionedSource[Any, None]):
    """A source of plays as one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        return [self.folder.name]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Plays:
        return Plays(self.folder)


class _Part(StatelessSinkPartition[Any]):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def write_batch(self, items: list[dict[str, Any]]) -> None:
        self.rows.extend(items)

    def close(self) -> None:
        pq.write_table(pa.Table.from_pylist(self.rows, _SCHEMA), self.path)


class Results(DynamicSink[Any]):
    """A Parquet file for each worker."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Part:
        return _Part(self.out / f"part-{worker_index}.parquet")


class _ReplayLogic(win.ClockLogic[Any, datetime]):
    def __init__(self, time: Callable[[Any], datetime], wait: timedelta, watermark: datetime) -> None:
        self.time, self.wait, self.watermark = time, wait, watermark

    def before_batch(self) -> None:
        return None

    def on_item(self, value: Any) -> tuple[datetime, datetime]:
        time = self.time(value)
        self.watermark = max(self.watermark, time - self.wait)
        return time, self.watermark

    def on_notify(self) -> datetime:
        return self.watermark

    def on_eof(self) -> datetime:
        return win.UTC_MAX

    def to_system_utc(self, timestamp: datetime) -> None:
        return None  # nothing happens when time passes, so nothing needs to wake up

    def snapshot(self) -> datetime:
        return self.watermark


class Replay(win.Clock[Any, datetime]):
    """An `EventClock` with a system time that stands still, because files are read faster than they were written."""

    def __init__(self, time: Callable[[Any], datetime], wait: timedelta) -> None:
        self.time, self.wait = time, wait

    def build(self, resume_state: datetime | None) -> _ReplayLogic:
        return _ReplayLogic(self.time, self.wait, resume_state or win.UTC_MIN)


class Nothing(win.WindowLogic[Any, Any, None]):
    """Stores nothing of a window: its length is in its metadata."""

    def on_value(self, value: Any) -> Iterable[Any]:
        return ()

    def on_merge(self, original: Any) -> Iterable[Any]:
        return ()

    def on_close(self) -> Iterable[Any]:
        return ()

    def snapshot(self) -> None:
        return None


class ByHand(op.StatefulBatchLogic[int, Any, list[tuple[int, int]]]):
    """The sessions of a user as pairs of first and last play, in integers and without Bytewax's windows."""

    def __init__(self, open_sessions: list[tuple[int, int]] | None) -> None:
        self.sessions = open_sessions or []
        self.watermark = 0

    def on_batch(self, values: list[int]) -> tuple[list[tuple[int, int]], bool]:
        sessions, watermark = self.sessions, self.watermark
        for time in values:
            if time < watermark:
                continue
            watermark = max(watermark, time - _BOUND_MICROS)
            first, last = sessions[-1] if sessions else (time, time - 2 * _GAP_MICROS)
            if first <= time <= last:
                continue
            if last < time <= last + _GAP_MICROS:
                sessions[-1] = first, time
            else:
                sessions = _with(time, sessions)
        over = [session for session in sessions if session[1] + _GAP_MICROS < watermark]
        # They are in order of time, so those that are over come first.
        self.sessions, self.watermark = sessions[len(over) :], watermark
        return over, False

    def on_eof(self) -> tuple[list[tuple[int, int]], bool]:
        return self.sessions, True

    def snapshot(self) -> list[tuple[int, int]]:
        return self.sessions


def _with(time: int, sessions: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the sessions with one more play, which may join some of them, in order of time."""
    near = [each for each in sessions if each[0] - _GAP_MICROS <= time <= each[1] + _GAP_MICROS]
    joined = min([time, *(first for first, _ in near)]), max([time, *(last for _, last in near)])
    return sorted([*(each for each in sessions if each not in near), joined])


def _length(first: datetime, last: datetime) -> tuple[str, tuple[datetime, float]]:
    end = last + _GAP
    return "all", (end - timedelta(microseconds=1), (end - first).total_seconds())


def _length_of_window(item: tuple[str, tuple[int, win.WindowMetadata]]) -> tuple[str, tuple[datetime, float]]:
    window = item[1][1]
    return _length(window.open_time, window.close_time)


def _length_by_hand(item: tuple[str, tuple[int, int]]) -> tuple[str, tuple[datetime, float]]:
    return _length(*map(_moment, item[1]))


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _row(item: tuple[str, tuple[int, tuple[float, int]]]) -> dict[str, Any]:
    window, (total, count) = item[1]
    return {"window_start": _EPOCH + window * timedelta(minutes=2), "mean": total / count, "sessions": count}


def lengths(name: str, plays: Any, by_hand: bool) -> Any:
    """Returns a stream of the sessions' lengths in seconds, with the last instants of their windows."""
    if by_hand:
        return op.map(f"length_{name}", op.stateful_batch(f"sessions_{name}", plays, ByHand), _length_by_hand)
    clock = Replay(_moment, timedelta(microseconds=_BOUND_MICROS))
    nothing = Nothing()
    sessions = win.window(
        f"sessions_{name}", plays, clock, win.SessionWindower(gap=_GAP), lambda _: nothing, ordered=False
    )
    return op.map(f"length_{name}", sessions.meta, _length_of_window)


def flow(data: Path, out: Path, by_hand: bool) -> Dataflow:
    flow = Dataflow("averages")
    both = [
        lengths(name, op.input(f"read_{name}", flow, Folder(data / name)), by_hand)
        for name in ("mobile", "console")
    ]
    # Earlier steps pass on no watermark: with a wait of seconds most sessions would be late here.
    sums = win.fold_window(
        "average",
        op.merge("flatten", *both),
        Replay(lambda length: length[0], timedelta(hours=3)),
        win.TumblingWindower(length=timedelta(minutes=2), align_to=_EPOCH),
        lambda: (0.0, 0),
        lambda total, length: (total[0] + length[1], total[1] + 1),
        lambda total, other: (total[0] + other[0], total[1] + other[1]),
        ordered=False,
    )
    op.output("write", op.map("row", sums.down, _row), Results(out))
    return flow


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    job = flow(given.data, given.out, given.by_hand)
    cluster_main(job, [], 0, epoch_interval=_NEVER, worker_count_per_proc=given.threads)
