"""Invalid side inputs of keyed state, and sides that cannot be built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import beamlike as bl


class Named(bl.Process):
    rates: list[int]
    n = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        if row["k"] == "sets":
            self.rates = []
        yield {"n": sum(self.rates) if row["k"] == "reads" else -1}

    def on_quiet(self) -> None: ...


class Taking(Named):
    def element(self, row: dict[str, Any], rates: list[int]) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        yield {"n": len(rates)}


def rows_of(p: bl.Pipeline, *keys: str) -> bl.Collection:
    rows = [{"k": key, "at": number} for number, key in enumerate(keys)]
    return p.read(
        "rows", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )


def processed(process: bl.Process, keyword: str = "rates", *keys: str, rates: int = 1) -> bl.Collection:
    p = bl.Pipeline("p")
    side = p.read("side", bl.Rows([{"rate": rate} for rate in range(rates)]))
    seen: Any = bl.as_list(side, "rate") if rates == 1 else bl.as_singleton(side, "rate")
    return rows_of(p, *keys).group_by("k").process(process, {"n": int}, side={keyword: seen})


@pytest.mark.parametrize(
    ("process", "keyword", "said"),
    [
        (Named(), "n", "side 'n' would be self.n, but Named already has n; choose another keyword"),
        (Named(), "quiet", "already has quiet"),
        (Named(), "limit", "already has limit"),
        (Named(), "key", "already has key"),
        (Named(), "on_quiet", "already has on_quiet"),
        (
            Taking(),
            "rates",
            "has a parameter 'rates', and a process reads the side as an attribute, self.rates",
        ),
    ],
)
def test_a_keyword_is_an_attribute_of_its_own(process: bl.Process, keyword: str, said: str) -> None:
    with pytest.raises(bl.PlanError, match=said):
        processed(process, keyword, "a")


def test_a_function_of_frames_must_accept_its_sides() -> None:
    p = bl.Pipeline("p")
    side = p.read("side", bl.Rows([{"rate": 1}]))
    with pytest.raises(
        bl.PlanError, match=r"called as few\(rows, state, due, rates=...\): got an unexpected"
    ):
        rows_of(p, "a").group_by("k").process_batches(few, {"n": int}, side={"rates": bl.as_list(side)})  # type: ignore[call-overload]


def few(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return rows, state


def letters(rows: bl.Collection) -> list[tuple[str, str]]:
    rows.write("out", bl.Memory())
    rows.dead_letters().write("letters", found := bl.Memory())
    rows.pipeline.run()  # type: ignore[attr-defined]
    return [(row["error"], row["row"]) for row in found.frame().iter_rows(named=True)]


def test_a_method_that_sets_a_side_makes_a_dead_letter() -> None:
    (letter,) = letters(processed(Named(), "rates", "reads", "sets", "none"))
    assert "self.rates is a side input, and all keys have it in common; it must not be set" in letter[0]


def test_only_rows_whose_method_reads_a_side_that_cannot_be_made_are_dead_letters() -> None:
    found = letters(processed(Named(), "rates", "reads", "none", rates=2))
    assert [error for error, _ in found] == ["ValueError: side 'side' has 2 rows where there should be one"]


def test_retractions_and_their_rows_cancel_out_while_they_wait_for_a_side() -> None:
    p = bl.Pipeline("p")
    early = {"trigger": bl.AfterWatermark(early=bl.AfterCount(1)), "accumulation": "retracting"}
    counts = rows_of(p, "a", "a", "b").window_into(bl.FixedWindows("1m"), **early)  # type: ignore[arg-type]
    side = p.read("side", bl.Rows([{"rate": rate} for rate in (1, 2)]))
    seen = (
        counts.group_by("k")
        .aggregate(n=bl.count())
        .group_by("k")
        .process(Summed(), {"k": str, "n": int}, side={"rates": bl.as_list(side, "rate")})
    )
    assert sorted(seen.collect().select("k", "n").rows()) == [("a", 203), ("b", 103)]


class Summed(bl.Process):
    rates: list[int]
    n = bl.Value(int, default=0)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        assert self.n == 1
        yield {"k": row["k"], "n": 100 * row["n"] + sum(self.rates)}
