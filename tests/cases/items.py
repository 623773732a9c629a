"""Rows of cases in a short notation: a time, "key@time", or "key@time=value"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from tests.cases.case import us
from tests.cases.process import Move, clocks_of

SCHEMA = pl.Schema({"key": pl.String(), "value": pl.String(), "at": pl.Int64()})


def row_of(item: Any) -> dict[str, Any]:
    """Returns a row. Rows without a key share one; a row without a value has its time. The key "null" is null."""
    text = str(item)
    key, _, rest = text.rpartition("@") if "@" in text else ("k", "", text)
    at, _, value = rest.partition("=")
    return {"key": None if key == "null" else key, "value": value or at, "at": us(float(at))}


def moves_of(step: Mapping[str, Any], side: str, sides: Sequence[str]) -> list[Move]:
    """Returns the batches of a step for one of several sources; all sources have the same number."""
    clocks = clocks_of(step)
    come = any(step.get(each) for each in sides)
    rows = tuple(map(row_of, step.get(side, ())))
    return ([Move(rows)] if come or not clocks else []) + clocks


def batches(steps: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> list[range]:
    """Returns the numbers of the batches of each step."""
    found, start = [], 0
    for step in steps:
        found.append(range(start, start := start + len(moves_of(step, sides[0], sides))))
    return found
