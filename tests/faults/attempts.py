"""Attempts at one task, of which one counts: `python -m tests.faults.attempts FOLDER STATE [URL]`.

STATE is the store of the state, URL a database, if there is one.

In its second batch, Spark runs one task more than once, and the attempts come to different rows:

copied     the second attempt is quicker, and counts; the first goes on when the batch is over
overtaken  the second attempt runs, the first then is quicker; the second goes on when the batch is over
failing    the first attempt loses its worker, the second cannot write the last sink, the third leaves half a file there
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs
import polars as pl
from pyspark import TaskContext
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark.query.task_activity import batch_of
from tests.faults.cluster import two_hosts
from tests.support.databases import execute, rows_of

Case = Literal["copied", "overtaken", "failing"]
CASES: Final[tuple[Case, ...]] = get_args(Case)
AS_IT_SHOULD_BE: Final = "as it should be"
BATCH: Final = 1
FORMATS = {"csv": bl.CSV, "json": bl.JSONLines, "parquet": bl.Parquet}
_COUNTS: Final = {"copied": {1}, "overtaken": {0}, "failing": {3, 4, 5}}
"""The numbers of the attempts that may count: one that does not fail may have copies, too."""
_NAMES: Final = ("user", "plays", "pane_timing", "pane_index", "pane_retracted", "made_by")
_USERS: Final = [f"user {number}" for number in range(12)]
_ROWS = [
    {"user": user, "at": 30 * batch + number} for batch in range(3) for number, user in enumerate(_USERS)
]


def attempt() -> int:
    """Returns the number of this process's attempt; -1 in a run without Spark, which has none."""
    context = TaskContext.get()
    return -1 if context is None else context.attemptNumber()


@attrs.frozen
class Play:
    """A scripted order of the attempts at shard 0 of the batch, which communicate by files."""

    folder: str
    case: Case

    @property
    def is_on(self) -> bool:
        """True if this process runs the task."""
        context = TaskContext.get()
        return context is not None and batch_of(context) == BATCH and context.partitionId() == 0

    def steps(self) -> None:
        """Waits or fails as scripted, after the stage's step and before any output."""
        if self.is_on:
            self.tell(f"{attempt()} runs")
            if self.case == "copied" and attempt() == 0:
                self.wait("over")
            elif self.case == "overtaken":
                self.wait("1 runs" if attempt() == 0 else "over")
            elif self.case == "failing" and attempt() == 0:
                os._exit(1)

    def writes(self, target: str) -> None:
        """Waits or fails as scripted, after output to all sinks except the last one."""
        if self.is_on:
            self.tell(f"{attempt()} wrote")
            if self.case == "failing" and attempt() == 1:
                raise OSError("no space left")
            if self.case == "failing" and attempt() == 2:
                Path(target).write_text("half")
                os._exit(1)

    def tell(self, what: str) -> None:
        """Sends an event to all processes."""
        Path(self.folder, what).touch()

    def wait(self, what: str) -> None:
        """Waits until another process has sent the event."""
        while not Path(self.folder, what).exists():
            time.sleep(0.02)


@attrs.frozen
class Step:
    """Adds the number of the attempt to each row."""

    play: Play

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        self.play.steps()
        return rows.with_columns(made_by=pl.lit(attempt(), pl.Int64))


@attrs.frozen
class LastParquet(bl.Parquet):
    """The sink that is written last."""

    play: Play = attrs.field(kw_only=True)

    def _save(self, frame: pl.DataFrame, target: str) -> None:
        self.play.writes(target)
        super()._save(frame, target)


def _is_bad(user: str, made_by: int) -> bool:
    return _USERS.index(user) % 4 == made_by


def _uneven(row: dict[str, Any]) -> dict[str, Any]:
    """Raises on rows that depend on the attempt."""
    if _is_bad(row["user"], row["made_by"]):
        raise ValueError(row["user"])
    return row


def pipeline(out: Path, play: Play, memory: bl.Memory, url: str | None = None) -> bl.Pipeline:
    """Declares counts by user, early and late, in a sink of every kind that tasks write to, and one of the driver's.

    Tables receive rows without the number of the attempt: they do not remove the rows of an earlier attempt.
    """
    p = bl.Pipeline("attempts")
    source = bl.Rows(_ROWS, rows_per_batch=len(_USERS))
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    windowed = read.window_into(
        bl.FixedWindows("1m"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
    )
    counts = windowed.group_by("user").aggregate(plays=bl.count())
    if url is not None:
        counts.write("a table", bl.Table(url, "counts"))
        counts.write("a log", bl.Table(url, "log", mode="append"))
    made = counts.map_batches(Step(play), {"user": str, "plays": int, "made_by": int}, name="made")
    uneven = made.map(_uneven, name="uneven")
    for name, kind in FORMATS.items():
        uneven.write(name, kind(out / name))
    uneven.write("by attempt", bl.Parquet(out / "by attempt", partition_by=["made_by", "user"]))
    uneven.write("memory", memory)
    uneven.dead_letters().write("letters", bl.JSONLines(out / "letters"))
    made.write("all", LastParquet(out / "all", play=play))
    return p


def differences(
    case: Case, folder: Path, session: SparkSession, state: Any, url: str | None = None
) -> list[str]:
    """Runs until all attempts have ended; returns the rows of sinks that are not of a valid attempt, as text."""
    play, memory = Play(str(folder / "told"), case), bl.Memory()
    Path(play.folder).mkdir(parents=True)

    def noted(record: Any) -> None:
        if record.batch == BATCH:
            play.tell("over")

    plan = pipeline(folder / "out", play, memory, url)
    checkpoint = str(folder / "checkpoint")
    runner = bl.SparkRunner(checkpoint, session=session, shards=2, drain=True, on_batch=noted, state=state)
    run = plan.run(runner)
    for number in (0, 1):
        play.wait(f"{number} runs" if case == "failing" else f"{number} wrote")
    counted = Counter[str]()
    for record in run.batches:
        counted.update(record.sinks)
    return [*_unlike(case, folder, memory, counted), *(_unlike_tables(folder, url) if url else [])]


def _unlike(case: Case, folder: Path, memory: bl.Memory, counted: Counter[str]) -> Iterator[str]:
    """Yields differences between each sink and the last sink, whose rows have the attempt that made them."""
    out, whole = folder / "out", bl.Memory()
    pipeline(folder / "expected", Play(str(folder), case), whole, f"sqlite:///{folder}/expected.db").run()
    made = _rows(out / "all", bl.Parquet)
    yield from _compared("all", [row[:-1] for row in made], [row[:-1] for row in _shown(whole.frame())])
    (file,) = (out / "all").glob(f"part-*-{BATCH:06d}-000.parquet")
    attempts = set(pl.read_parquet(file)["made_by"])
    if len(attempts) > 1 or not attempts <= _COUNTS[case]:
        yield f"of the attempts {attempts}, not of one of {_COUNTS[case]}"
    found = {name: _rows(out / name, kind) for name, kind in (*FORMATS.items(), ("by attempt", bl.Parquet))}
    found["memory"] = _shown(memory.frame())
    good = [row for row in made if not _is_bad(row[0], int(row[-1]))]
    letters = [(row["error"],) for row in _frame(out / "letters", bl.JSONLines).rows(named=True)]
    # A row that is retracted was a dead letter when it arrived.
    retracted = _NAMES.index("pane_retracted")
    bad = [(f"ValueError: {row[0]}",) for row in made if row not in good and row[retracted] == "false"]
    for name, rows, expected in [
        *((name, rows, good) for name, rows in found.items()),
        ("letters", letters, bad),
    ]:
        yield from _compared(name, rows, expected)
        if counted[name] != len(expected):
            yield f"the records count {counted[name]} {name}, not {len(expected)}"


def _compared(name: str, found: list[Any], expected: list[Any]) -> Iterator[str]:
    more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
    if more or less:
        yield f"{name}: {more.total()} rows too many, {less.total()} lost, such as {next(iter(more or less))}"


def _unlike_tables(folder: Path, url: str) -> Iterator[str]:
    """Yields the differences of tables; kinds of database print times differently."""
    for table in ("counts", "log"):
        found, expected = (
            [(row["user"], row["plays"], str(row["pane_index"])) for row in rows_of(place, table)]
            for place in (url, f"sqlite:///{folder}/expected.db")
        )
        yield from _compared(table, found, expected)


def _frame(folder: Path, kind: type[Any]) -> pl.DataFrame:
    return pl.concat([chunk.lazy().collect() for chunk in kind(folder).chunks(1_000)], how="vertical_relaxed")


def _rows(folder: Path, kind: type[Any]) -> list[tuple[str, ...]]:
    return _shown(_frame(folder, kind))


def _shown(frame: pl.DataFrame) -> list[tuple[str, ...]]:
    """Returns the rows as text, sorted, with the columns of all formats; the attempt comes last."""
    return sorted(frame.select(pl.col(name).cast(pl.String) for name in _NAMES).rows())


def main(folder: Path, state: str, url: str | None = None) -> None:
    """Runs all cases in sequence; prints a line for each."""
    with two_hosts(folder / "workers") as session:
        for case in CASES:
            if url:
                execute(url, "DROP TABLE IF EXISTS counts, log, beamlike_ledger")
            found = differences(case, folder / case, session, state, url)
            print(f"{case}: {'; '.join(found) or AS_IT_SHOULD_BE}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
