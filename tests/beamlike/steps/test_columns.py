"""`drop`, `rename` and `cast`: their results, and errors at declaration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import DuplicateName, ReservedName, UnknownColumn, WrongType
from tests.support.pipelines import SCHEMA, plays

GIVEN = [{"user": "ada", "at": 1, "score": "3"}, {"user": "bob", "at": 2, "score": "x"}]


def read() -> bl.Collection:
    rows = bl.Rows(GIVEN)
    return bl.Pipeline("p").read(
        "plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )


def test_the_columns_of_each_are_known_at_once() -> None:
    assert plays().drop("rate", "won").schema.names() == ["user", "score", "at", "tick"]
    assert plays().drop(["rate", "won"]).schema == plays().drop("rate", "won").schema
    assert plays().rename({"user": "score", "score": "user"}).schema.names() == [
        "score",
        "user",
        *SCHEMA.names()[2:],
    ]
    assert plays().cast({"score": float, "tick": pl.Decimal(20, 2)}).schema == {
        **SCHEMA, "score": pl.Float64(), "tick": pl.Decimal(20, 2),
    }  # fmt: skip


def test_a_run_gives_them_with_their_event_time_and_bad_casts_as_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = read().drop("at").rename({"user": "player"}).cast({"score": int}).named("typed")
    out, lost = bl.Memory(), bl.Memory()
    typed.write("out", out)
    typed.dead_letters().write("lost", lost)
    typed.pipeline.run()
    assert out.rows() == [
        {"player": "ada", "score": 3, "event_time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    ]
    assert [letter["step"] for letter in lost.rows()] == ["typed"]


def test_types_are_written_as_in_a_schema() -> None:
    cast = plays().cast({"score": str, "at": datetime, "won": int, "rate": pl.Decimal(10, 1)})
    assert cast.schema["at"] == pl.Datetime("us", "UTC")
    rows = bl.Rows([{"n": 1, "at": 1}])
    source = bl.Pipeline("p").read(
        "x", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    assert source.cast({"n": pl.Decimal(10, 2)}).collect()["n"].to_list() == [Decimal("1.00")]


def test_windows_and_panes_stay_whatever_is_dropped() -> None:
    totals = plays().window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    assert totals.drop("user").node.shape.system == totals.node.shape.system
    assert totals.drop("user").window_into(bl.FixedWindows("2m")).aggregate(n=bl.sum("n")).schema.names() == [
        "n"
    ]


@pytest.mark.parametrize(
    ("declare", "kind", "message"),
    [
        (
            lambda c: c.drop("usr"),
            UnknownColumn,
            "step 'plays.drop': there is no column 'usr'; .*did you mean 'user'",
        ),
        (
            lambda c: c.drop("event_time"),
            UnknownColumn,
            "the event time of a row is no column of its own",
        ),
        (
            lambda c: c.drop("window_start"),
            UnknownColumn,
            "the window start of a row is no column of its own",
        ),
        (lambda c: c.drop(), bl.PlanError, "give it the names"),
        (lambda c: c.drop(*SCHEMA), bl.PlanError, "no column would be left"),
        (lambda c: c.drop(3), WrongType, "named by a string, not by 3"),
        (lambda c: c.rename({"scor": "n"}), UnknownColumn, "step 'plays.rename': .*did you mean 'score'"),
        (
            lambda c: c.rename({"score": "user"}),
            DuplicateName,
            "'score' cannot be named 'user': another one has",
        ),
        (lambda c: c.rename({"score": "n", "tick": "n"}), DuplicateName, "'score' cannot be named 'n'"),
        (lambda c: c.rename({"score": "__n"}), ReservedName, "__n"),
        (lambda c: c.rename("score"), WrongType, 'such as {"old": "new"}, not \'score\''),
        (lambda c: c.cast({"scor": int}), UnknownColumn, "step 'plays.cast': .*did you mean 'score'"),
        (lambda c: c.cast({"score": "int"}), WrongType, "did you mean int"),
        (lambda c: c.cast(int), WrongType, 'such as {"score": float}'),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_match(
    declare: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        declare(plays())
