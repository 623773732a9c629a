"""Tables at the end of a pipeline: their rows after a run, and runs that are refused before they read anything."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.io import Sink
from beamlike.io.sql.table import Table
from beamlike.plan.run_graph import describe_run
from tests.support.databases import execute, rows_of
from tests.support.examples import share


def test_without_sqlalchemy_a_table_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["sqlalchemy"] = None
import beamlike as bl
try:
    bl.Table("sqlite:///x.db", "t")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "bl.Table needs SQLAlchemy: pip install 'beamlike[table]'"


def grouped(p: bl.Pipeline, **windowing: Any) -> bl.Collection:
    rows = [{"user": user, "at": at} for user, at in [("a", 1), ("b", 2), ("a", 30), ("a", 70)]]
    source = bl.Rows(rows, rows_per_batch=1)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    windowing = {"windows": bl.FixedWindows("1m")} | windowing
    return plays.window_into(**windowing).group_by("user").aggregate(n=bl.count())


def test_only_what_is_not_secret_of_the_url_is_shown() -> None:
    sink = Table("postgresql+psycopg://bob:hunter2@db:5/plays?sslpassword=hunter2", "t")
    shown = 'Table("postgresql+psycopg://db:5/plays", table="t")'
    p = bl.Pipeline("p")
    grouped(p).write("totals", sink)
    assert shown in p.explain()
    for text in (repr(sink), str(p.plan()), p.explain(), repr(p), str(describe_run(p.plan()))):
        assert "hunter2" not in text
        assert "bob" not in text
    assert isinstance(sink, Sink)
    assert sink.distributed
    assert not Table("sqlite:///x.db", "t").distributed  # a file on the driver's machine


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("sqlite:///out.db", "t"), ("sqlite:///./out.db", "T")),
        (("sqlite:///out.db", "t"), ("sqlite:///{here}/out.db?timeout=9", "main.t")),
        (
            ("postgresql+psycopg://a@localhost/x", "t"),
            ("postgresql+psycopg://b@127.0.0.1:5432/x", "public.t"),
        ),
        (("postgresql+psycopg:///x", "t"), ("postgresql+psycopg:///x?host=localhost", "t")),
    ],
)
def test_two_sinks_of_one_table_are_refused_however_it_is_spelt(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    p = bl.Pipeline("p")
    totals = grouped(p)
    totals.write("first", Table(*one, mode="append"))
    url, table = other
    with pytest.raises(PlanError, match=f"step 'second': writes to table '{table}', and so does 'first'"):
        totals.write("second", Table(url.format(here=os.getcwd()), table, mode="append"))


def test_tables_of_other_servers_databases_and_schemas_are_other_tables() -> None:
    url = "postgresql+psycopg://a@db/x"
    others = [url.replace("db", "there"), url.replace("/x", "/y"), url.replace("db", "db:5433")]
    places = {Table(u, "t").place for u in (url, *others)} | {Table(url, "s.t").place, Table(url, "T").place}
    assert len(places) == 6


def test_a_run_fills_the_table_and_the_next_one_leaves_it_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    for _ in range(2):
        p = bl.Pipeline("p")
        totals = grouped(p)
        # The table has the window, which was not selected, and the key, which was renamed.
        totals.select(n=bl.col("n") * 2, who=bl.col("user")).write("totals", Table(url, "totals"))
        run = p.run()
    found = [(row["who"], row["window_start"][11:16], row["n"]) for row in rows_of(url, "totals", "1, who")]
    assert found == [("a", "00:00", 4), ("b", "00:00", 2), ("a", "00:01", 2)]
    assert sum(record.sinks.get("totals", 0) for record in run.batches) == 3


def test_a_run_does_not_begin_where_a_table_does_not_fit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    execute(url, "CREATE TABLE totals (user TEXT)")
    kept = bl.JSONLines(tmp_path / "kept")
    for sink in (bl.Memory(), Table(url, "totals")):
        p = bl.Pipeline("p")
        grouped(p).write("kept", kept).write("totals", sink)
        if isinstance(sink, bl.Memory):
            p.run()
            before = sorted((tmp_path / "kept").iterdir())
        else:
            with pytest.raises(PlanError, match="step 'totals': the table 'totals' does not fit this sink"):
                p.run()
    assert before
    assert sorted((tmp_path / "kept").iterdir()) == before  # what an earlier run wrote is not lost


def test_a_database_that_cannot_be_reached_is_named_before_anything_is_read(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    grouped(p).write("totals", Table(f"postgresql+psycopg://bob:hunter2@/x?host={tmp_path}", "totals"))
    with pytest.raises(
        bl.SinkError, match=r"sink 'totals': Table\(\"postgresql\+psycopg:///x\", .* cannot be used"
    ) as caught:
        p.run()
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


EVENTS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 40)), min_size=1, max_size=14)


@share(3)
@given(EVENTS, st.integers(1, 4), st.booleans())
def test_sessions_that_grow_and_merge_leave_one_row_each(
    events: list[tuple[str | None, int]], rows_per_batch: int, per_pane: bool
) -> None:
    p, seen = bl.Pipeline("p"), bl.Memory()
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/out.db"
        source = bl.Rows(
            [{"user": user, "at": at} for user, at in events],
            {"user": str, "at": int},
            rows_per_batch=rows_per_batch,
        )
        plays = p.read(
            "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("9s")
        )
        sessions = plays.window_into(
            bl.Sessions("5s"),
            trigger=bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1)),
            accumulation=bl.RETRACTING,
            allowed_lateness="1h",
        )
        totals = sessions.group_by("user").aggregate(n=bl.count())
        totals.write("seen", seen).write("table", Table(url, "t", per_pane=per_pane))
        p.run()
        found = rows_of(url, "t")
    expected: dict[Any, int] = {}
    for row in seen.rows():
        key = (
            row["user"],
            row["window_start"],
            row["window_end"],
            *([row["pane_index"]] if per_pane else []),
        )
        expected.pop(key, None)
        if per_pane or not row["pane_retracted"]:
            expected[key] = row["n"]
    assert len(found) == len(expected)
    assert {
        (
            row["user"],
            *(datetime.fromisoformat(f"{row[name]}+00:00") for name in ("window_start", "window_end")),
            *([row["pane_index"]] if per_pane else []),
        ): row["n"]
        for row in found
    } == expected
    if not per_pane:
        assert sum(expected.values()) == len(events)
