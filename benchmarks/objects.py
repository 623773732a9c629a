"""The cost of a row as an object of a class, beside that of a row as a dict, for functions and for a `Process`.

`python -m benchmarks.objects` prints nanoseconds of CPU a row, and the ratio of both. They run in turns in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import attrs
import click
import polars as pl
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

import beamlike as bl
from benchmarks import quick

ROWS = 100_000
SCHEMA = {"user": str, "points": int, "rate": float, "at": datetime}
NESTED = {"user": str, "kind": str, "parts": list[int], "place": {"country": str, "city": str}}


class Kind(Enum):
    """A kind of click."""

    PAGE = "page"
    VIDEO = "video"


@dataclass
class DataClick:
    """A click as a dataclass."""

    user: str
    points: int
    rate: float
    at: datetime


@attrs.frozen
class AttrsClick:
    """A click as an attrs class."""

    user: str
    points: int
    rate: float
    at: datetime


class TupleClick(NamedTuple):
    """A click as a named tuple."""

    user: str
    points: int
    rate: float
    at: datetime


class DictClick(TypedDict):
    """A click as a typed dict."""

    user: str
    points: int
    rate: float
    at: datetime


class ModelClick(BaseModel):
    """A click as a model of pydantic."""

    user: str
    points: int
    rate: float
    at: datetime


@dataclass
class Place:
    """A part of a nested click."""

    country: str
    city: str


@dataclass
class NestedClick:
    """A click with an enum, a list and another class."""

    user: str
    kind: Kind
    parts: list[int]
    place: Place


class NestedModel(BaseModel):
    """A nested click as a model of pydantic."""

    user: str
    kind: Kind
    parts: list[int]
    place: Place


def _mapped(row: Any) -> Any:
    return type(row)(row.user, row.points + 1, row.rate, row.at)


def _modelled(row: Any) -> Any:
    return ModelClick(user=row.user, points=row.points + 1, rate=row.rate, at=row.at)


def _as_dict(row: Any) -> Any:
    return {"user": row["user"], "points": row["points"] + 1, "rate": row["rate"], "at": row["at"]}


def _nested(row: Any) -> Any:
    return type(row)(user=row.user, kind=row.kind, parts=row.parts, place=row.place)


def _nested_dict(row: Any) -> Any:
    return {"user": row["user"], "kind": row["kind"], "parts": row["parts"], "place": row["place"]}


FLAT: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "dataclass": (DataClick, _mapped),
    "attrs": (AttrsClick, _mapped),
    "NamedTuple": (TupleClick, _mapped),
    "TypedDict": (DictClick, _as_dict),
    "pydantic": (ModelClick, _modelled),
}
DEEP: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "dataclass, nested": (NestedClick, _nested),
    "pydantic, nested": (NestedModel, _nested),
}


def flat_rows(count: int) -> pl.DataFrame:
    """Returns clicks with four plain columns."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    at = [first + timedelta(seconds=number) for number in range(count)]
    columns = {"user": [f"user {number % 100}" for number in range(count)], "points": range(count)}
    return pl.DataFrame({**columns, "rate": [number / 2 for number in range(count)], "at": at})


def nested_rows(count: int) -> pl.DataFrame:
    """Returns clicks with a list and a struct."""
    place = {"country": "uk", "city": "London"}
    users = [f"user {number % 100}" for number in range(count)]
    return pl.DataFrame({"user": users, "kind": "page", "parts": [[1, 2]] * count, "place": [place] * count})


def _read(rows: pl.DataFrame, schema: Any) -> bl.Collection:
    return bl.Pipeline("clicks").read("clicks", bl.Rows(rows, schema=schema))


def mapped(kind: type, function: Callable[[Any], Any], count: int, *, nested: bool = False) -> quick.Pair:
    """Returns a `map` from objects to objects, and a baseline from dicts to dicts."""
    rows, schema = (nested_rows(count), NESTED) if nested else (flat_rows(count), SCHEMA)
    clicks, plain = _read(rows, schema), _nested_dict if nested else _as_dict

    def typed(row: Any) -> Any:
        return function(row)

    typed.__annotations__ = {"row": kind, "return": kind}
    steps = [clicks.map(typed).node.origin, clicks.map(plain).node.origin]
    one, other = (lambda step=step: step.attempt(rows.lazy()).rows.collect() for step in steps)
    return quick.Pair(one, other, lambda ours, theirs: ours.equals(theirs))


class Counted(bl.Process):
    """Counts the clicks of a user, as dicts."""

    n = bl.Value(int, default=0)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += row["points"]
        yield {"user": row["user"], "points": self.n, "rate": row["rate"], "at": row["at"]}


def processed(kind: type, function: Callable[[Any], Any], count: int) -> quick.Pair:
    """Returns a `Process` with objects, and a baseline with dicts."""
    rows = flat_rows(count)

    class Typed(bl.Process):
        n = bl.Value(int, default=0)

        def element(self, row: Any) -> Any:
            self.n += row["points"] if kind is DictClick else row.points
            yield from (function(row),)

    Typed.element.__annotations__ = {"row": kind, "return": Iterator[kind]}  # type: ignore[valid-type]

    def job(process: bl.Process, schema: Any) -> int:
        p, found = bl.Pipeline("clicks"), list[int]()
        source = bl.Rows(rows, rows_per_batch=count)
        clicks = p.read("clicks", source, timestamp="at", watermark=bl.MonotonousTimestamps())
        counted = clicks.group_by("user").process(process, schema, keep_forever=True)
        counted.write("out", bl.Callback(lambda frame, batch: found.append(len(frame))))
        p.run(bl.LocalRunner(quiet=True))
        return sum(found)

    return quick.Pair(lambda: job(Typed(), None), lambda: job(Counted(), SCHEMA))


def jobs(count: int) -> dict[str, Callable[[Path], quick.Pair]]:
    """Returns all measurements by name."""
    found: dict[str, Callable[[Path], quick.Pair]] = {}
    for name, one in FLAT.items():
        found[f"map, {name}"] = lambda _, one=one: mapped(*one, count)
    for name, one in DEEP.items():
        found[f"map, {name}"] = lambda _, one=one: mapped(*one, count, nested=True)
    for name, one in FLAT.items():
        found[f"Process, {name}"] = lambda _, one=one: processed(*one, count)
    return found


@click.command()
@click.option("--rows", default=ROWS, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
def main(rows: int, rounds: int) -> None:
    """Measure the cost of a row as an object beside that of a row as a dict."""
    shown = Table("job", "ns a row, object", "ns a row, dict", "ratio")
    for name, make in jobs(rows).items():
        figure = quick.take(name, make, rounds)
        cells = [figure.seconds / rows * 1e9, figure.baseline / rows * 1e9]
        shown.add_row(name, *(f"{cell:,.0f}" for cell in cells), f"{figure.ratio:.2f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
