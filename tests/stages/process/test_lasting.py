"""Containers with a time to live: a change in place counts as a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from stages.operator import MAIN
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME

SECOND = 1_000_000
SCHEMA = pl.Schema({"key": pl.String(), "at": pl.Int64()})


class Kept(bl.Process):
    """Changes its fields, and emits their previous content."""

    items = bl.List(int, ttl="10s")
    seen = bl.Set(int, ttl="10s")
    by = bl.Map(str, int, ttl="10s")

    def __init__(self, change: Callable[[Any, int], None]) -> None:
        self.change = change

    def element(self, row: dict[str, Any]) -> list[dict[str, str]]:
        told = f"{self.items} {sorted(self.seen)} {self.by}"
        self.change(self, row["at"] // SECOND)
        return [{"told": told}]


def _told(change: Callable[[Any, int], None], *times: int) -> list[str]:
    """Returns the output for rows of these times, each in a bundle of its own."""
    pipeline = bl.Pipeline("kept")
    source = bl.TestStream(SCHEMA)
    rows = pipeline.read("rows", source, timestamp="at", timestamp_unit="us")
    kept = rows.group_by("key", name="kept").process(Kept(change), {"told": str}, order="arrival")
    kept.write("out", bl.Callback(lambda frame: None))
    stage, store, told = pipeline.plan().stages["kept"].stage, DictStore(), []
    for time in times:
        row = pl.DataFrame({"key": ["k"], "at": [time * SECOND]}, SCHEMA)
        given = row.with_columns(pl.col("at").alias(EVENT_TIME))
        told += stage.step(store, {MAIN: given}, Times.of(MIN_TIME)).panes["told"].to_list()
    return told


def _twice(process: Any, at: int) -> None:
    process.items.append(at)
    process.items.append(at + 1)
    process.seen.add(at)
    process.seen.add(-at)
    process.by["a"] = at
    process.by["b"] = at


def test_a_container_is_changed_more_than_once_in_a_call() -> None:
    assert _told(_twice, 1, 5) == ["[] [] {}", "[1, 2] [-1, 1] {'a': 1, 'b': 1}"]


def test_so_is_one_that_was_outlived() -> None:
    assert _told(_twice, 1, 50, 55)[1:] == ["[] [] {}", "[50, 51] [-50, 50] {'a': 50, 'b': 50}"]


def _sometimes(process: Any, at: int) -> None:
    if at % 10 == 0:
        process.items.append(at)


@pytest.mark.parametrize(
    ("times", "last"), [((0, 9, 10), "[]"), ((0, 9), "[0]"), ((0, 25, 5), "[0]"), ((0, 20, 29), "[20]")]
)
def test_it_lasts_from_the_last_change_on_for_who_looks(times: tuple[int, ...], last: str) -> None:
    assert _told(_sometimes, *times)[-1] == f"{last} [] {{}}"


def _assign(process: Any, at: int) -> None:
    process.items = [at]
    process.items.append(at + 1)


def test_what_was_assigned_can_be_changed_in_the_same_call() -> None:
    assert _told(_assign, 3, 4)[-1] == "[3, 4] [] {}"
