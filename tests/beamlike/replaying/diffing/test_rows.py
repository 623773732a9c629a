"""The rows of two versions are compared as multisets, and paired by their keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
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
