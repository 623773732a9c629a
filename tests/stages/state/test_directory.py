"""The directory of large buckets: only the chunks that may have the requested keys are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from stages.operator import MAIN
from stages.stage import Stage
from stages.state.content import Search, numbers_found
from stages.state.directory import Directory, Entry
from stages.state.lookup import Hashes, HashIndex
from stages.state.row_numbers import BucketMask, Positions
from tests.stages.state.test_patches import (
    MANY,
    USUAL,
    Noting,
    Row,
    arrivals,
    as_of,
    early,
    filled,
    outer,
    running,
)
from tests.support.patched import moved, patched, require_exact
from windowing.clocks import Times

CHUNK = 50_000  # bytes


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with patched(**{**USUAL, "changed": 1_000, "chunk": CHUNK}):
        yield


def take(stage: Stage, store: Noting, keys: Iterable[str], turn: int) -> list[str]:
    """Adds rows with these keys as batch number `turn`, and returns the chunks that were read."""
    store.read.clear()
    rows: list[Row] = [(key, 6 + turn) for key in keys]
    stage.step(store, {MAIN: arrivals(stage, rows, (1 + turn) * MANY)}, Times.of(7 + turn, 0))
    read = [key for key in store.read if key.startswith("rows/")]
    require_exact(stage, store)
    return read


def of_rows(store: Noting) -> list[str]:
    return [key for _, key in store.values if key.startswith("rows/")]


def test_for_new_keys_no_rows_are_read() -> None:
    stage, store = filled(running)
    assert take(stage, store, (f"new {number}" for number in range(100)), 1) == []


def test_keys_that_came_together_are_read_together() -> None:
    stage, store = filled(running)
    take(stage, store, (f"new {number}" for number in range(100)), 1)
    last = of_rows(store)[-1]
    read = take(stage, store, (f"new {number}" for number in range(100)), 2)
    assert set(read) == {last, "rows/128/0"}  # what is due next is no longer in the last, but in the first


def test_what_was_replaced_is_not_read_again() -> None:
    stage, store = filled(running)
    assert len(take(stage, store, ["key 1"], 1)) == 1
    patch = of_rows(store)[-1]
    assert set(take(stage, store, ["key 1"], 2)) == {patch, "rows/128/0"}


def test_of_a_bucket_with_due_rows_only_their_chunks_are_read() -> None:
    stage, store = filled(as_of)
    rows: list[Row] = [("key 5", 9), ("key 5", 9)]  # the newer version replaces the older one at 9
    stage.step(store, {MAIN: arrivals(stage, rows, 3 * MANY)}, Times.of(8, 0))
    assert len(of_rows(store)) >= 4
    before, read = store.values.copy(), take(stage, store, [], 2)
    assert store.values != before
    assert 0 < len(set(read)) < len(of_rows(store)) / 2 + 1


@pytest.mark.parametrize("lost", ["all", "the first", "the last"])
def test_a_bucket_of_which_keys_are_not_noted_is_read_whole(lost: str) -> None:
    stage, store = filled(as_of)
    take(stage, store, ["key 1"], 1)
    noted = [place for place in store.values if place[1].startswith("keys/")]
    for place in {"all": noted, "the first": noted[:1], "the last": noted[-1:]}[lost]:
        store.delete(*place)
    before = of_rows(store)
    assert take(stage, store, ["key 2"], 2) == before


def test_what_was_noted_of_other_rows_is_not_believed() -> None:
    stage, store = filled(running)
    noted = {place: value for place, value in store.values.items() if place[1].startswith("keys/")}
    with patched(**{**USUAL, "changed": 0, "chunk": CHUNK}):
        take(stage, store, (f"new {number}" for number in range(100)), 1)  # rewritten
    store.values.update(noted)  # by a version that notes nothing, these would still be there
    before = of_rows(store)
    assert take(stage, store, ["new 1"], 2) == before


def test_nothing_is_noted_of_what_is_gone() -> None:
    stage, store = filled(running)
    for number in range(3):
        take(stage, store, [f"new {number}"], 1 + number)
    assert len([key for _, key in store.values if key.startswith("keys/")]) == 4
    with patched(**{**USUAL, "changed": 0, "chunk": CHUNK}):
        take(stage, store, ["new 4"], 5)
    assert [key for _, key in store.values if key.startswith("keys/")] == ["keys/128/0"]
    assert moved(stage, store).values.keys() == store.values.keys()


@pytest.mark.parametrize("make", [early, outer, running])
def test_a_bucket_of_which_most_rows_are_due_is_read_whole_without_a_search(
    make: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, store = filled(make)
    take(stage, store, ["key 1"], 1)
    before = of_rows(store)
    assert before
    monkeypatch.delattr(HashIndex, "find")
    store.read.clear()
    with patched(**{**USUAL, "chunk": CHUNK}):
        stage.step(store, {MAIN: arrivals(stage, [], 0)}, Times.of(60, 0))
    assert {key for key in store.read if key.startswith("rows/")} == {*before}
    assert of_rows(store) == []


@pytest.mark.parametrize(
    ("arriving", "keys", "searched"),
    [(MANY // 5, MANY, True), (MANY // 3, MANY, False), (MANY, MANY // 3, False), (MANY, 10, True)],
)
def test_a_bucket_in_which_rows_of_many_keys_arrive_is_read_whole_without_a_search(
    arriving: int, keys: int, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, store = filled(as_of)
    asked = Counter[str]()
    find = HashIndex.find

    def count(index: HashIndex, requested: Hashes) -> Positions:
        asked["find"] += 1
        return find(index, requested)

    monkeypatch.setattr(HashIndex, "find", count)
    with patched(**{**USUAL, "chunk": CHUNK, "crowded": 4}):
        take(stage, store, (f"key {number % keys}" for number in range(arriving)), 1)
    assert (asked.total() > 0) == searched


def test_buckets_that_do_not_change_are_searched_together() -> None:
    hashes = [np.arange(number, 100_000, 16, dtype=np.uint32) for number in range(16)]
    entries = [Entry(HashIndex(one), np.empty(0, np.uint32), [len(one)], 0, {}) for one in hashes]
    live = BucketMask(np.arange(len(hashes[0])) % 3 > 0)
    directories = [
        Directory([entry], live[: entry.length], [entry.length], entry.length, {}) for entry in entries
    ]
    requested = np.array([5, 8, 21, 3_000, 200_000], np.uint32)
    searches = [Search(one, requested) for one in directories]
    alone = [found.tolist() for found in numbers_found(searches)]
    for _ in range(20):
        assert [found.tolist() for found in numbers_found(searches, requested)] == alone
    assert len({entry.index.block for entry in entries} - {None}) == 1
    assert [place for place, found in enumerate(alone) if found] == [5, 8]
