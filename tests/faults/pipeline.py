"""The pipeline that is killed: two sources, sessions, a second stage, early and late panes that are retracted."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import sqlalchemy as sa

import beamlike as bl
from beamlike.io import Part
from tests.faults import moods, plays
from tests.faults.wires import Place, Wires

DATABASE = "out.sqlite"
TABLES = "tables.sqlite"


@attrs.frozen
class Passage:
    """A step that returns rows unchanged and reports a place."""

    wires: Wires
    place: Place

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        self.wires.passes(self.place)
        return rows


@attrs.frozen
class CutParquet(bl.Parquet):
    """A Parquet sink that reports a place when half of the file is on the disk."""

    wires: Wires = attrs.field(kw_only=True)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        super()._save(frame, target)
        whole = Path(target).read_bytes()
        Path(target).write_bytes(whole[: len(whole) // 2])
        self.wires.passes("part")
        Path(target).write_bytes(whole)


@attrs.frozen
class CutTable(bl.Table):
    """A table sink that reports a place before it commits."""

    wires: Wires = attrs.field(kw_only=True)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        def committing(connection: sa.Connection) -> None:
            self.wires.passes("transaction", part.batch)

        sa.event.listen(sa.Engine, "commit", committing)
        try:
            super().write(frame, part)
        finally:
            sa.event.remove(sa.Engine, "commit", committing)


@attrs.frozen
class Database:
    """A user-defined sink in SQLite: rows with the number of their batch, replaced when the batch is repeated.

    It also keeps the content of each attempt at a batch, in a transaction of its own.
    """

    path: str
    wires: Wires

    def __call__(self, frame: pl.DataFrame, batch: int) -> None:
        self.wires.passes("sink", batch)
        rows = [(batch, *row) for row in frame.select(pl.all().cast(pl.String)).rows()]
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS attempts (batch INTEGER, rows TEXT)")
            connection.execute("INSERT INTO attempts VALUES (?, ?)", (batch, repr(rows)))
            connection.commit()
            columns = ", ".join(f'"{name}" TEXT' for name in frame.columns)
            connection.execute(f"CREATE TABLE IF NOT EXISTS totals (batch INTEGER, {columns})")
            connection.execute("DELETE FROM totals WHERE batch = ?", (batch,))
            for number, row in enumerate(rows):
                if number == len(rows) // 2:
                    self.wires.passes("transaction", batch)
                connection.execute(f"INSERT INTO totals VALUES ({', '.join('?' * len(row))})", row)
            connection.commit()


def pipeline(data: Path, out: Path, wires: Wires) -> bl.Pipeline:
    """Reads a file of each source in a batch; writes below `out`."""
    out.mkdir(parents=True, exist_ok=True)  # SQLite makes files only
    p = bl.Pipeline("killed", max_dead_letters=1_000_000)
    formats = {"mobile": bl.Parquet, "console": bl.JSONLines}
    sessions, reads = [], []
    for name in plays.SOURCES:
        source = formats[name](data / name, plays.SCHEMA, max_files_per_trigger=1)
        read = p.read(name, source, timestamp="at", watermark=bl.BoundedOutOfOrderness(plays.BOUND))
        read = read.map_batches(Passage(wires, "read"), plays.SCHEMA, name=f"{name} read")
        sessions.append(_sessions(read, name))
        reads.append(read)
    _silences(reads).write("silences", bl.Parquet(out / "silences"))
    _pairs(*reads).write("pairs", bl.Parquet(out / "pairs"))
    _looked_up(p, reads).write("looked up", bl.Parquet(out / "looked"))
    late = bl.flatten(*(one.late() for one in sessions)).select("user", "score", "reason")
    late.write("late", bl.CSV(out / "late"))
    together = bl.flatten(*sessions)
    together.write("sessions", CutParquet(out / "sessions", wires=wires))
    totals = _totals(together, wires)
    totals.write("totals", bl.JSONLines(out / "totals"))
    totals.write("database", bl.Callback(Database(str(out / DATABASE), wires)))
    url = f"sqlite:///{out / TABLES}"
    totals.write("latest", CutTable(url, "latest", wires=wires))
    late.write("appended", CutTable(url, "appended", mode="append", wires=wires))
    moods.write(totals, out, wires, bl.Callback(Database(str(out / moods.DATABASE), wires)))
    return p


def _sessions(read: bl.Collection, name: str) -> bl.Collection:
    windowed = read.window_into(
        bl.Sessions("10s"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(3), late=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
        allowed_lateness=plays.LATENESS,
    )
    grouped = windowed.group_by("user", name=f"sessions of {name}")
    return grouped.aggregate(plays=bl.count(), score=bl.sum("score"), length=bl.window_length())


class Silence(bl.Process):
    """Emits users that are silent for twenty seconds, and, at the end of input, all users that have played."""

    plays = bl.Value(int, default=0)
    scores = bl.List(int)
    quiet = bl.EventTimer()
    seen = bl.ProcessingTimer(hold=True)

    def element(self, row: dict[str, Any]) -> None:
        self.plays += 1
        self.scores.append(row["score"])
        self.quiet.after("20s")
        if self.seen.pending() is None:
            self.seen.after("1d")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user, "what": "silent", "plays": self.plays, "scores": sum(self.scores)}
        self.scores.clear()

    def on_seen(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user, "what": "seen", "plays": self.plays, "scores": sum(self.scores)}


def _silences(reads: list[bl.Collection]) -> bl.Collection:
    schema = {"user": str, "what": str, "plays": int, "scores": int}
    return bl.flatten(*reads).group_by("user", name="silences by user").process(Silence(), schema)


def _pairs(left: bl.Collection, right: bl.Collection) -> bl.Collection:
    """Returns the plays of a user on both sources within two seconds, and plays without a partner."""
    return left.join(
        right, on="user", within=("-2s", "2s"), how="full", suffix="_right", name="pairs of plays"
    )


def _looked_up(p: bl.Pipeline, reads: list[bl.Collection]) -> bl.Collection:
    """Returns plays with the number of plays in their minute, and with a team from a table that is read once."""
    minutes = [one.window_into(bl.FixedWindows("1m"), name=f"minutes of {one.name}") for one in reads]
    busy = bl.flatten(*minutes, name="minutes of both").group_by("user", name="busy").aggregate(n=bl.count())
    table = p.read("teams", bl.Rows([{"user": user, "team": n % 3} for n, user in enumerate(plays.USERS)]))
    n, team = bl.lookup(busy, on="user")["n"], bl.lookup(table, on="user")["team"]
    return minutes[0].with_columns(n=n, team=team).named("looked at")


def _totals(sessions: bl.Collection, wires: Wires) -> bl.Collection:
    """Returns totals by minute and user; the lateness is as long as a session may be replaced."""
    windowed = sessions.map_batches(Passage(wires, "level 1"), name="after the first stage").window_into(
        bl.FixedWindows("1m"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
        allowed_lateness="10m",
    )
    totals = windowed.group_by("user", name="totals by user").aggregate(
        sessions=bl.count(), plays=bl.sum("plays"), score=bl.sum("score"), mean=bl.mean("plays")
    )
    return totals.map_batches(Passage(wires, "level 2"), name="after the second stage")
