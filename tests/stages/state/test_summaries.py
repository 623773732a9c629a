"""The index row of a bucket is the same whether it is computed alone or beside other buckets."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from stages.state.buckets import BUCKET
from stages.state.index import Size
from stages.state.summary import summarize
from stages.state_tables import KeyedTable
from windowing.clocks import PROCESSING_TIME, WATERMARK

NUMBERS = ("start", "end", "due", "later", PENDING, HOLD, OUTSTANDING_HOLD)
SCHEMA = pl.Schema(
    {
        BUCKET: pl.Int64(),
        "k": pl.String(),
        "n": pl.Int64(),
        "timer": pl.String(),
        **dict.fromkeys(NUMBERS, pl.Int64()),
    }
)

number = st.integers(-3, 3)
perhaps = st.none() | number
rows_of_buckets = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["a", "null", None]),
        perhaps,
        st.sampled_from(["t", None]),
        number,
        number,
        perhaps,
        perhaps,
        st.integers(0, 3),
        perhaps,
        perhaps,
    ),
    max_size=12,
)


@pytest.mark.parametrize("keys", [(), ("k",), ("k", "n")])
@pytest.mark.parametrize("panes", [False, True])
@pytest.mark.parametrize("timers", [False, True])
@pytest.mark.parametrize("later", [pl.col("later"), pl.lit(None, pl.Int64)], ids=["due", "never due"])
@given(rows=rows_of_buckets)
def test_a_bucket_alone_is_summarized_as_beside_others(
    keys: tuple[str, ...], panes: bool, timers: bool, later: pl.Expr, rows: list[tuple[object, ...]]
) -> None:
    placed = pl.DataFrame(rows, SCHEMA, orient="row")
    if not panes:
        placed = placed.drop(OUTSTANDING_HOLD)
    schema = pl.Schema({name: dtype for name, dtype in placed.schema.items() if name != BUCKET})
    table = KeyedTable(
        row="row",
        waits="waits",
        keys=keys,
        bounds=("start", "end"),
        schema=schema,
        incoming=schema,
        holder="timer" if timers else None,
        timers=pl.col("timer").is_not_null().cast(pl.Int64) if timers else None,
    )
    deadlines = {WATERMARK: pl.col("due"), PROCESSING_TIME: later}
    sizes = {bucket: Size(bucket, 1, 2, 3) for bucket in range(3)}
    together = summarize(placed, table, deadlines, sizes).sort(BUCKET)
    alone = [
        summarize(placed.filter(pl.col(BUCKET) == bucket), table, deadlines, sizes) for bucket in range(3)
    ]
    assert_frame_equal(pl.concat(alone), together)
