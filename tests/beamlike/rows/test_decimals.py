"""Decimals of users' functions, of state and of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import beamlike as bl

NAN, SCHEMA = Decimal("NaN"), {"n": int, "d": pl.Decimal(38, 2)}


def test_a_decimal_that_is_no_number_is_a_dead_letter_of_a_function() -> None:
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": 0}, {"n": 1}]))
    found = rows.map(lambda row: {"n": row["n"], "d": NAN if row["n"] else Decimal(1)}, schema=SCHEMA)
    assert found.collect().rows() == [(0, Decimal("1.00"))]
    assert "NaN is no number that a column can have" in found.dead_letters().collect()["error"][0]


def test_a_decimal_that_is_no_number_is_a_dead_letter_of_a_process() -> None:
    class Kept(bl.Process):
        one = bl.Value(Decimal)

        def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
            self.one = NAN if row["n"] else Decimal(2)
            yield {"n": row["n"], "d": self.one}

    source, watermark = bl.Rows([{"n": 0}, {"n": 1}]), bl.MonotonousTimestamps()
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = p.read("rows", source, timestamp="n", timestamp_unit="s", watermark=watermark)
    rows.group_by("n").process(Kept(), SCHEMA, keep_forever=True).write("out", out)
    p.run()
    assert out.frame().select("n", "d").rows() == [(0, Decimal("2.00"))]


@pytest.mark.parametrize("number", ["NaN", "sNaN", "-Infinity"])
@pytest.mark.parametrize("schema", [None, {"d": pl.Decimal(38, 2)}, {"d": int}])
def test_rows_in_memory_with_a_decimal_that_is_no_number_are_refused(schema: Any, number: str) -> None:
    with pytest.raises(TypeError, match="Rows accepts"):
        bl.Rows([{"d": Decimal(number)}], schema=schema)
