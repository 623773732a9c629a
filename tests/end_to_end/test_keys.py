"""Keys of every allowed type: joins, dedup and all keyed steps treat them like whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import polars as pl
import pytest

import beamlike as bl

BERLIN = ZoneInfo("Europe/Berlin")
KEYS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "unsigned": (pl.UInt64(), [3, 2**64 - 1, 2**63, 0]),
    "wide": (pl.Int128(), [3, 2**126, -(2**126), 0]),
    "text": (pl.String(), ["a", "", "null", "\x00"]),
    "bytes": (pl.Binary(), [b"", b"\x00", b"\xff", b"a"]),
    "date": (pl.Date(), [date(2020, 1, 1), date(1900, 1, 1), date(1970, 1, 1), date(9999, 1, 1)]),
    "time": (pl.Time(), [time(0), time(1, 2, 3, 4), time(23, 59), time(12)]),
    "decimal": (pl.Decimal(38, 2), [Decimal(text) for text in ("1.50", "-1.50", "0.00", "99999999999.99")]),
    "zoned": (
        pl.Datetime("us", "Europe/Berlin"),
        [  # the first two are the same on the clock, an hour apart
            *(datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)),
            datetime(1960, 1, 1, tzinfo=BERLIN),
            datetime(2024, 1, 1, tzinfo=BERLIN),
        ],
    ),
    "nanoseconds": (pl.Datetime("ns"), [datetime(year, 1, 1) for year in (2024, 1960, 1970, 2200)]),
    "category": (pl.Categorical(), ["b", "a", "", "c"]),
    "enum": (pl.Enum(["a", "b", "c", ""]), ["b", "a", "", "c"]),
}
NUMBERS = (pl.Int64(), [0, 1, 2, 3])
Side = list[tuple[int | None, int, int]]
"""Rows: a key or None, a second key, and the second of the event time."""


class Counting(bl.Process):
    """Counts the rows of a key."""

    seen = bl.Value(int)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.seen = (self.seen or 0) + 1
        yield {"n": row["n"], "seen": self.seen}


@attrs.frozen
class Case:
    """The rows of two sides and the columns by which they are joined."""

    left: Side
    right: Side
    on: tuple[str, ...]

    @classmethod
    def random(cls, seed: int, on: tuple[str, ...]) -> Case:
        chance = Random(seed)
        sides = [
            [
                (chance.choice([0, 1, 2, 3, None]), chance.randrange(2), chance.randrange(60))
                for _ in range(30)
            ]
            for _ in range(2)
        ]
        return cls(*sides, on)

    def run(self, dtype: pl.DataType, values: list[Any], chunk_rows: int) -> dict[str, list[str]]:
        """Returns the output of each step, with keys replaced by their numbers."""
        p, sinks = bl.Pipeline("keys"), {}
        sides = [
            self.read(p, name, side, dtype, values)
            for name, side in (("left", self.left), ("right", self.right))
        ]
        for name, output in self.steps(*sides):
            output.write(f"{name} out", sinks.setdefault(name, bl.Memory()))
        result = p.run(bl.LocalRunner(chunk_rows=chunk_rows))
        assert not any(count for batch in result.batches for count in batch.dead_letters.values())
        return {name: numbered(sink.frame(), values) for name, sink in sinks.items()}

    @staticmethod
    def read(p: bl.Pipeline, name: str, side: Side, dtype: pl.DataType, values: list[Any]) -> bl.Collection:
        rows = [
            {
                "key": None if key is None else values[key],
                "other": other,
                "n": n,
                "at": datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC),
            }
            for n, (key, other, second) in enumerate(side)
        ]
        schema = {"key": dtype, "other": pl.Int64(), "n": pl.Int64(), "at": pl.Datetime("us", "UTC")}
        strategy = bl.BoundedOutOfOrderness("1m")
        return p.read(name, bl.Rows(rows, schema=schema), timestamp="at", watermark=strategy)

    def steps(self, left: bl.Collection, right: bl.Collection) -> Iterator[tuple[str, bl.Collection]]:
        on = list(self.on)
        for how in ("inner", "left", "full"):
            yield f"within, {how}", left.join(right, on=on, how=how, within=("-5s", "5s"))
        yield "as of", left.join_asof(right, on=on)
        yield "as of, of late", left.join_asof(right, on=on, how="inner", tolerance="5s")
        yield "dedup", left.dedup(*on, within="5s")
        here, there = (side.window_into(bl.FixedWindows("10s")) for side in (left, right))
        yield "join", here.join(there, on=on, how="full")
        yield "distinct", here.select(*on).distinct()
        sizes = bl.cogroup(here=here.select(*on, "n"), there=there.select(*on, "n")).by(*on)
        yield "cogroup", sizes.with_columns(here=bl.col("here").list.len(), there=bl.col("there").list.len())
        yield "process", here.group_by(*on).process(Counting(), schema={"n": int, "seen": int})
        yield "running", here.group_by(*on).running(c=bl.count(), s=bl.sum("n"))
        yield "top", here.group_by("other").aggregate(top=bl.top("key", 3, by="n"))


def numbered(frame: pl.DataFrame, values: list[Any]) -> list[str]:
    """Returns the rows, sorted, with the numbers of keys."""
    # By their text: times that the clock shows twice are equal in Python.
    numbers = {repr(value): number for number, value in enumerate(values)} | {"None": None}

    def plain(name: str, value: Any) -> Any:
        if name.startswith("key"):
            return numbers[repr(value)]
        return [numbers[repr(one)] for one in value] if name == "top" else value

    return sorted(repr({name: plain(name, row[name]) for name in row}) for row in frame.to_dicts())


@cache
def of_numbers(on: tuple[str, ...]) -> dict[str, list[str]]:
    return Case.random(5, on).run(*NUMBERS, chunk_rows=1_000)


SOME = {"bytes", "zoned", "decimal", "category"}


@pytest.mark.parametrize(
    "kind", [kind if kind in SOME else pytest.param(kind, marks=pytest.mark.slow) for kind in KEYS]
)
def test_any_key_is_as_good_as_a_number(kind: str) -> None:
    on = ("other", "key") if len(kind) % 2 else ("key",)  # alone, or one of two
    assert all(of_numbers(on).values())
    assert Case.random(5, on).run(*KEYS[kind], chunk_rows=13) == of_numbers(on)


OTHERS = {
    "a narrower number": (pl.Int64(), pl.Int32()),
    "a category": (pl.String(), pl.Categorical()),
    "other categories": (pl.Enum(["a", "b"]), pl.Enum(["b", "a"])),
    "another zone": (pl.Datetime("us", "UTC"), pl.Datetime("us", "Europe/Berlin")),
    "other digits": (pl.Decimal(38, 2), pl.Decimal(20, 2)),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_keys_of_two_types_are_refused(kind: str) -> None:
    p = bl.Pipeline("keys")
    left, right = (
        Case.read(p, name, [], dtype, []) for name, dtype in zip(("left", "right"), OTHERS[kind], strict=True)
    )
    here, there = (side.window_into(bl.FixedWindows("10s")) for side in (left, right))
    message = r"the key 'key' of 'left.* is .*, and 'key' of 'right.* is .*; cast one of them before"
    for join in (
        lambda: left.join(right, on="key", within=("0s", "5s")),
        lambda: left.join_asof(right, on="key"),
        lambda: here.join(there, on="key"),
        lambda: bl.cogroup(here=here, there=there).by("key"),
    ):
        with pytest.raises(TypeError, match=message):
            join()
