"""Exact values: a type that would round them, or make them null, refuses them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl

NUMBER = Decimal("1.55")


def test_a_decimal_without_bounds_has_the_digits_of_spark() -> None:
    schema = {"x": Decimal, "y": list[Decimal], "z": {"w": Decimal}}
    rows = bl.Rows([{"x": NUMBER, "y": [NUMBER], "z": {"w": NUMBER}}], schema=schema)
    assert rows.schema()["x"] == pl.Decimal(38, 18)
    assert bl.Pipeline("p").read("rows", rows).collect().rows(named=True) == [
        {"x": NUMBER, "y": [NUMBER], "z": {"w": NUMBER}}
    ]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([{"x": NUMBER}], pl.Decimal(10, 1)),
        (pl.DataFrame({"x": [NUMBER]}), pl.Decimal(10, 1)),
        (pl.DataFrame({"x": [1.5]}), int),
    ],
)
def test_rows_that_a_type_would_round_are_refused(given: Any, dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"Rows accepts .*1\.5"):
        bl.Rows(given, schema={"x": dtype})


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    [
        (pl.Decimal(10, 1), NUMBER, "1.55 has more than 1 digits after the point"),
        (pl.List(pl.Decimal(10, 1)), [NUMBER], "1.55 has more than 1 digits"),
        ({"y": pl.Decimal(10, 1)}, {"y": NUMBER}, "1.55 has more than 1 digits"),
        (pl.Decimal(38, 2), Decimal("1e-30"), "1E-30 has more than 2 digits"),
    ],
)
def test_a_result_that_a_type_would_round_is_a_dead_letter(
    dtype: Any, value: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # dead letters go there
    p = bl.Pipeline("p", max_dead_letters=1)
    out = bl.Memory()
    p.read("rows", bl.Rows([{"n": 1}])).map(lambda row: {"x": value}, {"x": dtype}, name="f").write(
        "out", out
    )
    (record, *_) = p.run().batches
    assert why in record.errors["f"]
    assert out.rows() == []


def test_zeros_at_the_end_fit() -> None:
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}]))
    found = rows.map(lambda row: {"x": Decimal("1.500")}, {"x": pl.Decimal(10, 1)}).collect()
    assert found["x"].to_list() == [Decimal("1.5")]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (5, list[int]),
        ("abc", list[str]),
        ("abc", {"w": str}),
        (["a"], list[int]),
        ([1.5], list[int]),
        ({"w": "x"}, {"w": int}),
        ({"z": 1}, {"w": int}),
        ([NUMBER], pl.List(pl.Decimal(10, 1))),
        ({"w": NUMBER}, {"w": pl.Decimal(10, 1)}),
        (2**70, Decimal),
    ],
)
def test_a_value_that_does_not_fit_is_neither_null_nor_another(value: Any, dtype: Any) -> None:
    with pytest.raises(TypeError, match="'x' is "):
        bl.Rows([{"x": value}], schema={"x": dtype})


def test_a_text_is_no_list_of_texts_in_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # dead letters go there
    p = bl.Pipeline("p", max_dead_letters=1)
    rows = p.read("rows", bl.Rows([{"n": 1}])).map(lambda row: {"x": "abc"}, {"x": list[str]}, name="f")
    rows.write("out", bl.Memory())
    assert "expected a list, got 'abc'" in next(iter(p.run().batches)).errors["f"]
