"""`explode` and `unnest`: rows of lists, columns of structs."""

from __future__ import annotations

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import DuplicateName, UnknownColumn, WrongType
from tests.support.pipelines import plays

ROWS = [{"at": 1, "user": "ada", "pairs": [{"x": 1}, {"x": 2}]}, {"at": 2, "user": "bob", "pairs": []}]
SCHEMA = {"at": int, "user": str, "pairs": pl.List(pl.Struct({"x": pl.Int64()}))}


def read() -> bl.Collection:
    watermark = bl.MonotonousTimestamps()
    return bl.Pipeline("p").read(
        "rows", bl.Rows(ROWS, SCHEMA), timestamp="at", timestamp_unit="s", watermark=watermark
    )


def test_an_item_is_a_row_beside_the_other_columns_and_its_fields_are_columns() -> None:
    items = read().explode("pairs", number="place").unnest("pairs")
    assert items.schema == {"at": pl.Int64(), "user": pl.String(), "x": pl.Int64(), "place": pl.Int64()}
    assert items.collect().select("user", "x", "place").rows() == [("ada", 1, 1), ("ada", 2, 2)]


def test_only_what_is_wanted_is_made() -> None:
    assert read().explode("pairs", number="place").select("user").collect()["user"].to_list() == [
        "ada",
        "ada",
    ]
    assert read().explode("pairs", number="place").select("place").collect()["place"].to_list() == [1, 2]


def test_a_sink_that_replaces_rows_takes_no_items() -> None:
    windows = plays().window_into(bl.FixedWindows("1m")).group_by("user").aggregate(best=bl.top("score", 2))
    with pytest.raises(bl.PlanError, match="makes several rows of one"):
        windows.explode("best").write("out", bl.Table("sqlite:///x.db", "t", mode="upsert"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(WrongType, match="explode needs a column of lists, but 'user' is String"):
        read().explode("user")
    with pytest.raises(DuplicateName, match="number='user' is the name of a column"):
        read().explode("pairs", number="user")
    with pytest.raises(UnknownColumn, match="did you mean 'pairs'"):
        read().explode("pair")
    with pytest.raises(WrongType, match="unnest needs a column of structs, but 'user' is String"):
        read().unnest("user")
    with pytest.raises(DuplicateName, match="the field 'x' of 'pairs' has the name of a column"):
        read().explode("pairs").with_columns(x=1).unnest("pairs")
