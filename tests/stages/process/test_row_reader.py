"""Rows are read as dicts, or as the arguments of a class, from any position."""

from __future__ import annotations

import attrs
import polars as pl
import pytest

from beamlike.rows.objects import RowObjects
from beamlike.rows.row_class import RowClass
from stages.process.row_reader import RowReader

ROWS = pl.DataFrame({"user": [f"u{number % 7}" for number in range(20_000)], "n": range(20_000)})


@attrs.frozen
class Row:
    user: str
    n: int


@pytest.mark.parametrize("begin", [0, 1, 127, 128, 129, 8_192, 19_999, 20_000])
@pytest.mark.parametrize("objects", [None, RowObjects(RowClass(Row), ("user", "n"))])
def test_rows_are_read_from_any_position(begin: int, objects: RowObjects | None) -> None:
    reader = RowReader(ROWS, objects)
    read = [*reader.since(begin)]
    assert read == [*reader.between(begin, len(ROWS))]
    rows = ROWS.slice(begin)
    assert read == (rows.rows(named=True) if objects is None else rows.rows())
    assert [*reader.between(begin, begin + 3)] == read[:3]


def test_only_few_rows_are_converted_before_the_first_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[int] = []
    between = RowReader.between

    def counted(reader: RowReader, begin: int, end: int) -> object:
        converted.append(end - begin)
        return between(reader, begin, end)

    monkeypatch.setattr(RowReader, "between", counted)
    for begin in range(0, 2_000, 2):  # as after each of a thousand cells that fail
        next(RowReader(ROWS, None).since(begin))
    assert sum(converted) <= 1_000 * 128
