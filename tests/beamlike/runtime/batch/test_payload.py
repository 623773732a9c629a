"""Rows on their way to a shard: packed rows are unpacked unchanged, and structs that are all null take no space."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from beamlike.runtime.batch.envelope import packed, unpacked
from stages.frames import size_of

SIDE = pl.Struct(
    {"text": pl.String(), "numbers": pl.List(pl.Int64()), "inner": pl.Struct({"x": pl.Decimal(20, 2)})}
)


def rows(count: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"number": range(count)})
    return numbers.select(pl.lit(None, SIDE).alias("left"), "number", right=pl.struct(x="number"))


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_what_is_packed_is_unpacked(count: int) -> None:
    frames = [rows(count), rows(count).select("left"), rows(count).select("number")]
    # One row that is not null is enough.
    frames.append(pl.concat([rows(count), rows(1).with_columns(left=pl.struct(text=pl.lit("a")).cast(SIDE))]))
    for frame in frames:
        assert_frame_equal(unpacked(packed(frame)), frame)


def test_many_rows_are_compressed_and_few_are_not() -> None:
    many, few = rows(100_000).select("number"), rows(1_000).select("number")
    assert len(packed(many)) < size_of(many) / 1.5
    assert len(packed(few)) > size_of(few)
    assert_frame_equal(unpacked(packed(many)), many)


def test_the_other_side_of_a_join_takes_no_room() -> None:
    assert len(packed(rows(10_000))) < len(packed(rows(10_000).drop("left"))) + 2_000
