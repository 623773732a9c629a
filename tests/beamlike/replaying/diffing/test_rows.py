"""The rows of two versions are compared as multisets, and paired by their keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.replaying.diffing.rows import differing

Row = tuple[Any, ...]
SCHEMA = {"key": pl.String, "value": pl.Float64, "list": pl.List(pl.Int64)}
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.0, 1.5, float("nan"), None]),
        st.sampled_from([[], [1], [1, None], None]),
    ),
    max_size=6,
)


def frame(given_rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(given_rows, schema=SCHEMA, orient="row")


def counted(one: pl.DataFrame) -> Counter[str]:
    return Counter(map(repr, one.select(SCHEMA.keys()).rows()))


@given(rows, rows)
def test_equal_rows_cancel_and_the_others_are_new_gone_or_changed(old: list[Row], new: list[Row]) -> None:
    found = differing(frame(old), frame(new), ["key"])
    gone, added = counted(frame(old)) - counted(frame(new)), counted(frame(new)) - counted(frame(old))
    assert counted(found.gone) + counted(found.changed) == gone
    assert counted(found.new) + counted(found.into) == added
    assert found.same == len(old) - gone.total()
    assert found.changed["key"].to_list() == found.into["key"].to_list()
    left = {*found.gone["key"].to_list()} & {*found.new["key"].to_list()}
    assert not left
    assert bool(found) == bool(gone or added)


@given(rows, rows)
def test_without_an_identity_no_row_is_changed(old: list[Row], new: list[Row]) -> None:
    found = differing(frame(old), frame(new), [])
    assert counted(found.gone) == counted(frame(old)) - counted(frame(new))
    assert counted(found.new) == counted(frame(new)) - counted(frame(old))
    assert found.changed.is_empty()


def test_columns_that_only_one_version_has_are_named_and_not_compared() -> None:
    old = pl.DataFrame({"key": ["a"], "n": [1], "old": [2]})
    new = pl.DataFrame({"key": ["a"], "n": [1.0], "new": [3]})
    found = differing(old, new, ["key"])
    assert found.columns == ["column n was Int64, now Float64", "column old is gone", "column new is new"]
    assert (found.same, len(found.changed)) == (1, 0)
    assert found


USERS = pl.DataFrame({"user": ["ada", "bob", "eve"], "n": [1, 2, 2], "day": ["mon", "tue", None]})
RENAMED = {
    "one column": (USERS, USERS.rename({"n": "plays"}), ["column n is now called plays"], 3),
    "two columns": (
        USERS,
        USERS.rename({"n": "plays", "day": "on"}),
        ["column n is now called plays", "column day is now called on"],
        3,
    ),
    "the key": (USERS, USERS.rename({"user": "name"}), ["column user is now called name"], 3),
    "nothing": (USERS, USERS, [], 0),
    "in another order": (USERS, USERS.select("day", "user", "n"), [], 0),
    "with other values": (
        USERS,
        USERS.select("user", "day", plays=pl.col("n") + 1),
        ["column n is gone", "column plays is new"],
        3,
    ),
    "of another type": (
        USERS,
        USERS.select("user", "day", plays=pl.col("n").cast(pl.Float64)),
        ["column n is gone", "column plays is new"],
        3,
    ),
    "gone": (USERS, USERS.drop("n"), ["column n is gone"], 3),
    "only new": (USERS, USERS.with_columns(plays="n"), ["column plays is new"], 0),
    "two with equal values": (
        USERS.with_columns(m="n"),
        USERS.select("user", "day", x="n", y="n"),
        ["column n is now called x", "column m is now called y"],
        3,
    ),
    "with further rows": (
        USERS,
        pl.concat([USERS, USERS.head(1).with_columns(user=pl.lit("zoe"))]).rename({"n": "plays"}),
        ["column n is now called plays"],
        3,
    ),
}


@pytest.mark.parametrize("case", RENAMED)
def test_rows_with_a_renamed_column_are_changed(case: str) -> None:
    old, new, columns, changed = RENAMED[case]
    found = differing(old, new, [], whole=True)
    assert found.columns == columns
    assert len(found.changed) == len(found.into) == changed
    assert found.same == (0 if changed else len(old))
    assert len(found.new) == max(len(new) - len(old), 0)
    assert bool(found) == bool(columns)
