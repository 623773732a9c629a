"""Rows that a function changes after it has emitted them: their values at the time of emission count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import polars as pl
import pytest
from pydantic import BaseModel

import beamlike as bl
from beamlike.rows.objects import class_of_results
from beamlike.rows.taken import Taking


@dataclass
class Note:
    n: int


@dataclass
class Row:
    user: str
    n: int
    all: list[int]
    notes: list[Note]


COLUMNS = {"user": str, "n": int, "all": list[int], "notes": pl.List(pl.Struct({"n": pl.Int64}))}


class Dicts(bl.Process):
    """Emits the dict in its state, and changes it."""

    row = bl.Value(COLUMNS)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.row is None:
            self.row = {"user": row["user"], "n": 0, "all": [], "notes": [{"n": 0}]}
        for _ in range(2):
            self.row["n"] += 1
            self.row["all"].append(self.row["n"])
            self.row["notes"][0]["n"] += 1
            yield self.row


class Objects(bl.Process):
    """Emits the object in its state, and changes it."""

    row = bl.Value(Row)

    def element(self, row: dict[str, Any]) -> Iterator[Row]:
        if self.row is None:
            self.row = Row(row["user"], 0, [], [Note(0)])
        for _ in range(2):
            self.row.n += 1
            self.row.all.append(self.row.n)
            self.row.notes[0].n += 1
            yield self.row


@pytest.mark.parametrize("rows_per_batch", [1, 3])
@pytest.mark.parametrize(("process", "schema"), [(Dicts(), COLUMNS), (Objects(), None)])
def test_emitted_rows_do_not_depend_on_the_batches(process: Any, schema: Any, rows_per_batch: int) -> None:
    given = [{"user": "ada", "at": second} for second in range(3)]
    source, out = bl.Rows(given, rows_per_batch=rows_per_batch), bl.Memory()
    p = bl.Pipeline("p")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.group_by("user").process(process, schema, keep_forever=True).write("out", out)
    p.run()
    expected = [("ada", n, [*range(1, n + 1)], [{"n": n}]) for n in range(1, 7)]
    assert out.frame().select(list(COLUMNS)).rows() == expected


def test_a_dict_may_be_yielded_again() -> None:
    def several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for n in range(2):
            row["n"] = n
            yield row

    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": 7}]))
    assert rows.flat_map(several).collect()["n"].to_list() == [0, 1]


def test_an_object_may_be_returned_again() -> None:
    kept = Note(0)

    def counted(row: dict[str, Any]) -> Note:
        kept.n += row["n"]
        return kept

    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}, {"n": 2}]))
    assert rows.map(counted).collect()["n"].to_list() == [1, 3]


class Pair(NamedTuple):
    a: int
    b: str


@attrs.frozen
class Frozen:
    a: int
    b: str


@attrs.define
class Changing:
    a: int
    b: str


class Model(BaseModel):
    a: int
    b: str


SCHEMA = pl.Schema({"a": pl.Int64(), "b": pl.String()})


@pytest.mark.parametrize(("kind", "is_copied"), [(Pair, 0), (Frozen, 0), (Changing, 1), (Model, 1)])
def test_only_objects_that_may_change_are_copied(kind: Any, is_copied: int) -> None:
    row = kind(a=1, b="x")
    found = Taking(SCHEMA, class_of_results(kind))()(row)
    assert (found == {"a": 1, "b": "x"}) if is_copied else (found is row)


@pytest.mark.parametrize("value", [None, 7, "x", [1], Pair(1, "x"), {"a": "no int"}])
def test_what_is_no_row_is_returned_as_it_is(value: Any) -> None:
    assert Taking(SCHEMA)()(value) == value
    assert Taking(SCHEMA, class_of_results(Changing))()(value) == value


@pytest.mark.parametrize(
    "value", [None, "x", 7, (1, [2]), [[1], None], {"p": [1]}, {"p": None}, {"p": 3}, [{"p": [1]}], {1}]
)
def test_nested_values_of_any_type_are_copied(value: Any) -> None:
    for dtype in (pl.List(pl.List(pl.Int64)), pl.Struct({"p": pl.List(pl.Int64)}), pl.Array(pl.Int64, 1)):
        found = Taking(pl.Schema({"v": dtype}))()({"v": value})["v"]
        assert found == (list(value) if isinstance(value, tuple) else value) or found == value
        assert found is not value or not isinstance(value, list | dict | set)
