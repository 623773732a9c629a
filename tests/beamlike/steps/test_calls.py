"""Calls of a service: rows keep their order, some calls run at once, and only rows of a failed call are lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import WrongType

TYPES = {"n": int}


def numbers(count: int) -> bl.Collection:
    rows = bl.Rows([{"n": n, "at": 0} for n in range(count)])
    return (
        bl.Pipeline("calls")
        .read("numbers", rows, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("0s"))
        .select("n")
    )


class Service:
    """Doubles numbers; `trouble(first, tries)` makes a call fail or wait, by its first number and earlier tries."""

    def __init__(self, trouble: Any = lambda first, tries: None) -> None:
        self.trouble, self.tries, self.running, self.most = trouble, dict[int, int](), 0, 0

    async def double(self, table: pl.DataFrame) -> pl.DataFrame:
        values = table["n"].to_list()
        tried = self.tries.setdefault(values[0], 0)
        self.tries[values[0]] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)  # lets others run
            if (trouble := self.trouble(values[0], tried)) is not None:
                await trouble
        finally:
            self.running -= 1
        return pl.DataFrame({"n": [2 * value for value in values]})


async def fails() -> None:
    raise ConnectionError("the service is away")


async def hangs() -> None:
    await asyncio.Event().wait()


def test_results_are_in_order_and_so_many_calls_run_at_once() -> None:
    service = Service()
    doubled = numbers(10).map_batches(service.double, schema=TYPES, calls=bl.Calls(rows=2, at_once=3))
    assert doubled.collect()["n"].to_list() == [2 * n for n in range(10)]
    assert service.most == 3


def test_a_call_that_fails_is_tried_again() -> None:
    service = Service(lambda first, tries: fails() if first == 2 and tries < 2 else None)
    doubled = numbers(6).map_batches(service.double, schema=TYPES, calls=bl.Calls(rows=2, retries=2))
    assert doubled.collect()["n"].to_list() == [0, 2, 4, 6, 8, 10]
    assert service.tries == {0: 1, 2: 3, 4: 1}


@pytest.mark.parametrize(
    ("trouble", "error"),
    [(fails, "ConnectionError: the service is away"), (hangs, "TimeoutError: no answer within 10ms")],
)
def test_only_the_rows_of_a_call_that_fails_for_good_are_dead_letters(trouble: Any, error: str) -> None:
    service = Service(lambda first, tries: trouble() if first == 2 else None)
    calls = bl.Calls(rows=2, timeout="10ms", retries=0)
    doubled = numbers(6).map_batches(service.double, schema=TYPES, calls=calls)
    letters, rows = bl.Memory(), bl.Memory()
    doubled.dead_letters().write("letters", letters)
    doubled.write("rows", rows)
    doubled.pipeline.run()
    assert [row["n"] for row in rows.rows()] == [0, 2, 8, 10]
    assert [json.loads(row["row"])["n"] for row in letters.rows()] == [2, 3]
    assert {row["error"] for row in letters.rows()} == {
        f"{error}; the call with 2 rows in which this row was failed"
    }


def test_an_answer_that_does_not_fit_is_not_asked_for_again() -> None:
    asked = []

    async def short(table: pl.DataFrame) -> pl.DataFrame:
        asked.append(len(table))
        return table.slice(1)

    wrong = numbers(2).map_batches(short, schema=TYPES)
    assert "map_batches gave 1 rows for 2" in wrong.dead_letters().collect()["error"][0]
    assert asked == [2]


def test_it_can_be_called_where_an_event_loop_runs() -> None:
    async def main() -> list[int]:
        return list(numbers(2).map_batches(Service().double, schema=TYPES).collect()["n"])

    assert asyncio.run(main()) == [0, 2]


def test_what_is_wrong_is_told_when_it_is_declared() -> None:
    rows, service = numbers(1), Service()
    with pytest.raises(bl.PlanError, match="give schema=, as a service is not called to find it"):
        rows.map_batches(service.double)
    with pytest.raises(bl.PlanError, match=r"calls= is for coroutine functions.*write it as async def"):
        rows.map_batches(lambda table: table, calls=bl.Calls())
    with pytest.raises(WrongType, match=r"calls= must be bl\.Calls"):
        rows.map_batches(service.double, schema=TYPES, calls=8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"rows": 0}, "rows"),
        ({"at_once": 0}, "at_once"),
        ({"retries": -1}, "retries"),
        ({"timeout": "0s"}, "timeout must be"),
    ],
)
def test_limits_that_are_none_are_refused(choices: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bl.Calls(**choices)
