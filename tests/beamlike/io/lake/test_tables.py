"""Tables of Delta Lake and Iceberg: each batch is in them completely and once, appended or merged by its key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import beamlike as bl
from beamlike.io import Part
from beamlike.io.sinks import SinkInput

EVERY = pl.DataFrame(
    {
        "small": [1, None],
        "unsigned": [2**64 - 1, 0],
        "text": ["a", None],
        "kind": ["x", "y"],
        "at": [datetime(2026, 1, 1), None],
        "zoned": [datetime(2026, 1, 1, tzinfo=UTC), None],
        "took": [timedelta(milliseconds=1), None],
        "nested": [{"counts": [1, 2], "when": datetime(2026, 1, 1)}, None],
    },
    schema={
        "small": pl.Int8,
        "unsigned": pl.UInt64,
        "text": pl.String,
        "kind": pl.Categorical,
        "at": pl.Datetime("ms"),
        "zoned": pl.Datetime("ns", "Europe/Berlin"),
        "took": pl.Duration("ms"),
        "nested": pl.Struct({"counts": pl.List(pl.UInt8), "when": pl.Datetime("ms")}),
    },
)


def fitted(sink: Any, frame: pl.DataFrame = EVERY) -> Any:
    return sink.fitted(SinkInput("rows", frame.schema, tuple(frame.columns)))


class OfDelta:
    """A Delta table in a test: its sinks, its rows, and changes to it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "table")

    def sink(self, **choices: Any) -> Any:
        return bl.Delta(self.path, **choices)

    def rows(self) -> pl.DataFrame:
        return pl.read_delta(self.path)

    def versions(self) -> int:
        return DeltaTable(self.path).version()


class OfIceberg:
    """An Iceberg table in a test: its sinks, its rows, and changes to it."""

    def __init__(self, folder: Path) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": str(folder),
        }

    def sink(self, **choices: Any) -> Any:
        return bl.Iceberg("games.plays", self.catalog, **choices)

    def table(self) -> Any:
        return load_catalog("default", **self.catalog).load_table("games.plays")

    def rows(self) -> pl.DataFrame:
        return pl.DataFrame(pl.from_arrow(self.table().scan().to_arrow()))

    def versions(self) -> int:
        return len(self.table().snapshots())


@pytest.fixture(params=[OfDelta, OfIceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def test_values_of_all_types_are_there_in_types_that_tables_have(table: Any) -> None:
    sink = fitted(table.sink())
    sink.write(EVERY, Part("run", 0))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert table.rows().rows() == [
        (1, 2**64 - 1, "a", "x", moment, moment, 1_000, {"counts": [1, 2], "when": moment}),
        (None, 0, None, "y", None, None, None, None),
    ]


def test_a_batch_is_there_once_and_all_of_its_parts_together(table: Any) -> None:
    sink = fitted(table.sink())
    sink.check()
    before = table.versions()
    parts = [sink.prepare(EVERY, Part("run", 0, task)) for task in range(3)]
    assert table.versions() == before
    lost = sink.prepare(EVERY, Part("run", 0, 1))  # an attempt that does not count
    for again in (False, True):
        sink.settle("run", 0, {**parts[0], **parts[1], **parts[2]}, again=again)
    assert len(table.rows()) == 3 * len(EVERY)
    assert table.versions() == before + 1
    sink.settle("run", 1, lost, again=False)
    sink.settle("run", 1, sink.prepare(EVERY, Part("run", 1)), again=True)
    sink.settle("run", 2, {}, again=False)
    assert len(table.rows()) == 4 * len(EVERY)
    assert table.versions() == before + 2


def test_a_batch_that_the_run_did_not_write_is_not_taken_for_its_own(table: Any) -> None:
    sink = fitted(table.sink())
    sink.check()
    for batch in (0, 1):
        sink.settle("run", batch, sink.prepare(EVERY, Part("run", batch)), again=False)
    for batch, again in ((1, False), (0, True)):
        with pytest.raises(RuntimeError, match=f"has batch 1 of this run already, and this is batch {batch}"):
            sink.settle("run", batch, sink.prepare(EVERY, Part("run", batch)), again=again)
    assert len(table.rows()) == 2 * len(EVERY)


def test_a_run_that_begins_anew_adds_its_batches(table: Any) -> None:
    for _ in range(2):
        p = bl.Pipeline("plays")
        p.read("rows", bl.Rows(EVERY, rows_per_batch=1)).write("table", table.sink())
        p.run()
    assert len(table.rows()) == 2 * len(EVERY)


def sessions(sink: Any, rows: list[dict[str, Any]]) -> bl.Pipeline:
    read = bl.Pipeline("sessions").read(
        "plays",
        bl.Rows(rows, {"user": str, "at": int}, rows_per_batch=1),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    windowed = read.window_into(bl.Sessions("1m"), trigger=early, accumulation=bl.RETRACTING)
    windowed.group_by("user").aggregate(plays=bl.count()).write("table", sink)
    return read.pipeline


def test_later_panes_replace_rows_and_those_taken_back_go(table: Any) -> None:
    users = [("ada", 0), (None, 30), ("ada", 40), ("ada", 500)]
    pipeline = sessions(table.sink(mode="upsert"), [{"user": user, "at": at} for user, at in users])
    pipeline.run()
    found = table.rows().sort("window_end").select("user", pl.col("window_end").dt.epoch("s"), "plays")
    assert found.rows() == [(None, 90, 1), ("ada", 100, 2), ("ada", 560, 1)]
    pipeline.run()  # the same once more
    assert len(table.rows()) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.with_columns(more=1), r"it has no column 'more'"),
        (lambda frame: frame.with_columns(text=1), r"its column 'text' is String, and not Int32"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    table: Any, change: Callable[[pl.DataFrame], pl.DataFrame], message: str
) -> None:
    fitted(table.sink()).check()
    with pytest.raises(bl.PlanError, match=message):
        fitted(table.sink(), change(EVERY)).check()


def test_what_cannot_be_is_refused_in_words(table: Any) -> None:
    with pytest.raises(
        ValueError, match=r"mode may be 'append' or 'upsert', not 'apend'; did you mean 'append'"
    ):
        table.sink(mode="apend")
    with pytest.raises(bl.PlanError, match="no output of one"):
        bl.Pipeline("p").read("rows", bl.Rows(EVERY)).write("table", table.sink(mode="upsert"))
