"""Rows of every form as a source, and rows in memory as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import beamlike as bl
from beamlike.errors import PlanError
from tests.support.row_classes import CLICKS, Flat, Place, Score

FRAME = pl.DataFrame({"user": ["ada", "bob"], "points": [3, 5]})

FORMS: dict[str, Callable[[], Any]] = {
    "dicts": FRAME.to_dicts,
    "objects": lambda: [One("ada", 3), One("bob", 5)],
    "a polars frame": lambda: FRAME,
    "a lazy frame": FRAME.lazy,
    "a pandas frame": lambda: FRAME.to_pandas(),
    "an Arrow table": FRAME.to_arrow,
    "an Arrow batch": lambda: FRAME.to_arrow().to_batches()[0],
    "a reader of batches": lambda: FRAME.to_arrow().to_reader(),
    "a relation of DuckDB": lambda: duckdb.from_arrow(FRAME.to_arrow()),
    "anything with an Arrow stream": lambda: Stream(),
}


class One(NamedTuple):
    user: str
    points: int


class Stream:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return FRAME.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", FORMS)
def test_rows_may_have_any_form(form: str) -> None:
    assert bl.Rows(FORMS[form]()).frame.equals(FRAME)
    found = bl.Rows(FORMS[form](), schema={"user": str, "points": float}).frame
    assert found.equals(FRAME.cast({"points": pl.Float64}))
    assert bl.Rows(FORMS[form](), schema=One).frame.equals(FRAME)


@pytest.mark.parametrize("kind", [kind for kind in CLICKS if kind != "typed dict"])
def test_objects_of_every_kind_are_rows(kind: str) -> None:
    row = {"user": "a", "points": 1, "at": "2026-01-01T00:00:00Z", "rate": None, "kind": "page", "way": "web"}
    given = CLICKS["pydantic"](**row, tags={"y", "x"}, place=Place("uk", [1]))
    (found,) = bl.Rows([CLICKS[kind](**dict(given))]).frame.to_dicts()
    assert found == {
        **row,
        "at": given.at,
        "tags": ["x", "y"],
        "place": {"country": "uk", "zips": [1]},
        "times": 1,
    }


def test_no_rows_have_the_columns_of_a_class() -> None:
    assert bl.Rows([], schema=Flat).frame.schema == {
        "user": pl.String(),
        "points": pl.Int64(),
        "note": pl.String(),
    }


def test_objects_are_elements_of_a_test_stream() -> None:
    stream = bl.TestStream(Score).add_elements([Score(user="ada", points=1, last=Flat("ada", 0))])
    assert stream.steps[0].elements.to_dicts() == [
        {"user": "ada", "points": 1, "last": {"user": "ada", "points": 0, "note": None}}
    ]
    with pytest.raises(TypeError, match="step 0: column 'points' is Int64, not 'x'"):
        bl.TestStream(Flat).add_elements([Flat("ada", "x")])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([7], "7 is neither a dict nor an object of a class such as a dataclass"),
        (
            [Flat("a", 1), One("a", 1)],
            r"One\(user='a', points=1\) is of another class than Flat\(.*; give schema=",
        ),
        ([Flat("a", "x")], "'points' is Int64: found 'x'"),
        (7, "7 is none of them"),
        ([], "there are no rows to infer the columns from; give schema="),
    ],
)
def test_other_rows_are_refused(given: Any, why: str) -> None:
    with pytest.raises(TypeError, match=rf"Rows accepts dicts, objects of a class, or .*{why}"):
        bl.Rows(given)


# Rows in memory as an Arrow stream


def test_memory_runs_and_collections_are_arrow_streams_after_a_run() -> None:
    out, p = bl.Memory(), bl.Pipeline("p")
    rows = p.read("rows", bl.Rows(FRAME))
    doubled = rows.with_columns(points=bl.col("points") * 2).write("out", out).named("doubled")
    with pytest.raises(PlanError, match="the collection 'doubled' has no rows yet: run the pipeline first"):
        pl.DataFrame(doubled)
    run = p.run()
    for one in (out, run, doubled):
        assert pa.table(one).to_pydict() == {"user": ["ada", "bob"], "points": [6, 10]}
        assert pl.DataFrame(one).equals(out.frame())
    assert bl.Rows(run).frame.equals(out.frame())
    with pytest.raises(
        PlanError, match=r"the collection 'rows' has no rows in memory: .* write it to a bl.Memory\(\)"
    ):
        pl.DataFrame(rows)


def test_a_run_without_rows_has_the_columns_and_one_of_several_sinks_is_not_chosen() -> None:
    out, p = bl.Memory(), bl.Pipeline("p")
    rows = p.read("rows", bl.Rows([], schema=One)).write("out", out)
    assert pl.DataFrame(p.run()).schema == {"user": pl.String(), "points": pl.Int64()}
    rows.write("more", bl.Memory())
    with pytest.raises(
        PlanError, match="the run of 'p' has several sinks in memory, more, out; read one of these"
    ):
        pl.DataFrame(p.run())
