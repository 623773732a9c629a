"""The type of an expression is the same whether columns stand for its parts or not."""

from __future__ import annotations

import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.expressions.typed import Typing

A, B, T, D, TEXT = (nw.col(name) for name in ("a", "b", "t", "d", "text"))
TYPES = {
    "a": pl.Int32(), "b": pl.Float32(), "t": pl.Datetime("us"), "d": pl.Decimal(12, 2), "text": pl.String(),
    "small": pl.UInt8(), "list": pl.List(pl.Int64()), "other": pl.Categorical(),
}  # fmt: skip
WRITTEN = [
    A + B, A + A + A, A + 1, 1 + A, nw.lit(1) + A, (nw.lit(1) + 2) + A, A * (B + (A - nw.lit(2))), A / 2 + 1,
    (A + 1).alias("x") + B, (A + 1).name.suffix("_y"), (A * 2).cast(nw.Int8) + A, T - T, T + (T - T), D * D + A,
    D + nw.lit(1), nw.col("small") - 10, nw.col("small") + nw.col("small") * nw.col("small"),
    nw.when(A > B).then(A).otherwise(B) + A, nw.coalesce(A, nw.lit(0)) + A, (A > 1) & (B < 2) | (A == 3),
    TEXT.str.len_chars() + A, nw.concat_str(TEXT, TEXT).str.len_chars() * 2, nw.sum_horizontal(A, nw.col("small")) + B,
    A.max() - A, (A - A.mean()) / A.std(), A.sum().over("text") + B, nw.col("list").list.len() + 1,
    A.fill_null(0) + A.fill_null(B), T.dt.truncate("1h") - T, T.dt.year() + A, nw.col("other") + TEXT,
    A.is_in([1, 2]) & A.is_null(), -(A + A) ** 2, (A % 3) // nw.col("small"), D.round(1) + D,
]  # fmt: skip


@pytest.mark.parametrize("expression", WRITTEN, ids=map(str, range(len(WRITTEN))))
def test_parts_change_no_name_and_no_type(expression: nw.Expr) -> None:
    typing = Typing.of(TYPES)
    (made,) = typing.typed(expression)
    whole = nw.from_native(pl.LazyFrame(schema=TYPES)).select(nw.Expr(*made._nodes)).to_native()
    ((name, dtype),) = whole.collect_schema().items()
    assert typing._field(made) == (name, dtype)
    for known in typing._known.values():
        if known.dtype is not None:
            part = nw.from_native(pl.LazyFrame(schema=TYPES)).select(nw.Expr(*known.expression._nodes))
            assert dict(part.to_native().collect_schema()) == {known.name: known.dtype}


@pytest.mark.parametrize("length", [2, 50, 300])
def test_long_chains_are_declared(length: int) -> None:
    """The time to declare them grows with their length, and not with its square."""
    p = bl.Pipeline("p")
    rows = p.read("rows", bl.Rows([{"n": 1}]))
    left, right = bl.col("n"), bl.col("n")
    for _ in range(length - 1):
        left = left + bl.col("n")
    for _ in range(min(length, 60) - 1):
        right = bl.col("n") + right
    assert rows.select(left=left, right=right).collect().rows() == [(length, min(length, 60))]
