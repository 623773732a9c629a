"""Logs of changes without whole old rows: the newest row of each key is stored, or such a row is a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Part, output_frame
from beamlike.testing.player import Recorder
from stages.process.newest_of_key import NOT_SENT
from tests.end_to_end.test_change_log import EACH, Entry, entry, expected, histories, order, read, tables
from tests.support.examples import share
from tests.support.shards import Query


def only_key(row: Entry) -> Entry:
    return {"id": row["id"], "shop": None, "cents": None}


def without_old_rows(bundles: Sequence[Sequence[Entry]], unsent: bool) -> list[list[Entry]]:
    """Returns the log as a database writes it that logs keys only, and no large values that did not change."""
    found = []
    for rows in bundles:
        found.append([])
        for row in rows:
            old, new = row["before"], row["after"]
            if new is not None and old is not None:
                if unsent and old["shop"] == new["shop"]:
                    new = {**new, "shop": NOT_SENT}
                found[-1].append(entry(row["op"], None, new))
            else:
                found[-1].append(entry(row["op"], old and only_key(old), new))
    return found


@pytest.mark.parametrize("shards", [0, 3])
@share(2)
@given(histories(), st.booleans())
def test_aggregates_of_a_table_need_no_old_rows(
    shards: int, bundles: list[list[Entry]], unsent: bool
) -> None:
    p, recorder = bl.Pipeline("shops"), Recorder()
    orders = read(p, without_old_rows(bundles, unsent), key="id").window_into(**EACH)
    orders.group_by("shop").aggregate(n=bl.count(), sum=bl.sum("cents"), most=bl.max("cents")).write(
        "out", recorder
    )
    batches = 0
    if not shards:
        batches = len(p.run(bl.LocalRunner()).batches)
    else:
        for batch in Query(p.plan(), shards, seed=1).batches():
            for task, frame in enumerate(batch.frames("out")):
                recorder.write(output_frame(frame), Part("p", batches, task))
            batches += 1
    net: Counter[tuple[Any, ...]] = Counter()
    for number, table in enumerate(tables(bundles)):
        end = number + 1 if number + 1 < len(bundles) else batches
        for row in recorder.rows(range(number, end)):
            key = tuple(row[name] for name in ("shop", "n", "sum", "most"))
            net[key] += -1 if row["pane_retracted"] else 1
        assert +net == Counter(key[:-1] for key in expected(table, {}))
        assert all(count >= 0 for count in net.values())


def left(log: list[Entry], *, bundles: int = 1, **choices: Any) -> tuple[list[Any], list[str], int]:
    """Returns the rows that are left of a table, errors of dead letters, and the number of unmatched retractions."""
    p, out, letters = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    changes = read(
        p, [log[number::bundles] for number in range(bundles)] if bundles > 1 else [log], **choices
    )
    changes.write("out", out)
    changes.dead_letters().write("letters", letters)
    run = p.run()
    net: Counter[Any] = Counter()
    for row in out.rows():
        net[(row["id"], row["shop"], row["cents"])] += -1 if row["pane_retracted"] else 1
    assert all(count >= 0 for count in net.values())
    dropped = [one.dropped.get("unmatched", 0) for batch in run.batches for one in batch.stages.values()]
    return sorted(+net, key=repr), [row["error"] for row in letters.rows()], sum(dropped)


ADA, BOB = order(1, "x", 5), order(2, "x", 7)
BASE = [entry("c", None, ADA), entry("c", None, BOB)]
FOUND: dict[str, tuple[list[Entry], list[Any]]] = {
    "an update without its old row": ([entry("u", None, order(2, "y", 7))], [(1, "x", 5), (2, "y", 7)]),
    "an update with its key": ([entry("u", only_key(BOB), order(2, "y", 7))], [(1, "x", 5), (2, "y", 7)]),
    "an update with another old row": ([entry("u", order(2, "?", 0), order(2, "y", 7))], [(1, "x", 5), (2, "y", 7)]),
    "a delete with its key": ([entry("d", only_key(BOB))], [(1, "x", 5)]),
    "a delete with its row": ([entry("d", BOB)], [(1, "x", 5)]),
    "a delete and a tombstone": ([entry("delete", only_key(BOB)), entry(None)], [(1, "x", 5)]),
    "a row of nulls": ([entry("c", None, order(9, None, 1)), entry("d", only_key(BOB))], [(1, "x", 5), (9, None, 1)]),
    "deleted and made again": ([entry("d", only_key(BOB)), entry("c", None, BOB)], [(1, "x", 5), (2, "x", 7)]),
    "made again and deleted": ([entry("d", only_key(BOB)), entry("c", None, BOB), entry("d", only_key(BOB))],
                               [(1, "x", 5)]),
    "a snapshot again": ([entry("r", None, ADA), entry("r", None, BOB)], [(1, "x", 5), (2, "x", 7)]),
    "another key": ([entry("u", only_key(BOB), order(3, "x", 7))], [(1, "x", 5), (3, "x", 7)]),
    "a value that was not sent": ([entry("u", None, order(2, NOT_SENT, 8))], [(1, "x", 5), (2, "x", 8)]),
    "several that were not sent": ([entry("u", None, order(2, NOT_SENT, cents)) for cents in (8, 9)],
                                   [(1, "x", 5), (2, "x", 9)]),
    "null that was not sent": ([entry("u", None, order(2, None, 8)), entry("u", None, order(2, NOT_SENT, 9))],
                               [(1, "x", 5), (2, None, 9)]),
}  # fmt: skip


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", FOUND)
def test_the_old_row_is_found_by_its_key(name: str, together: bool) -> None:
    log, rows = FOUND[name]
    everything = [*BASE, *log]
    assert left(everything, bundles=1 if together else len(everything), key="id") == (rows, [], 0)


TOLD: dict[str, tuple[list[Entry], dict[str, Any], str]] = {
    "a delete with its key": ([entry("d", only_key(BOB))], {}, "all columns of 'before' but one are null"),
    "an update with its key": ([entry("u", only_key(BOB), BOB)], {}, "the log has only the key of that row"),
    "a delete without a row": ([entry("d")], {}, "is null"),
    "an update without its old row": ([entry("u", None, BOB)], {}, "or give key="),
    "a new value that was not sent": ([entry("u", BOB, order(2, NOT_SENT, 8))], {}, "'shop' in 'after' was not sent"),
    "an old value that was not sent": ([entry("d", order(2, NOT_SENT, 7))], {}, "'shop' in 'before' was not sent"),
    "the first value was not sent": ([entry("u", None, order(3, NOT_SENT, 8))], {"key": "id"}, "no row of its key"),
    "a delete that has no key": ([entry("d", only_key(order(None, "x", 1)))], {"key": "id"},  # type: ignore[arg-type]
                                 "the key 'id' is null in 'before'"),
    "a row that has no key": ([entry("c", None, order(None, "x", 1))], {"key": "id"},  # type: ignore[arg-type]
                              "the key 'id' is null in 'after'"),
    "nothing to delete": ([entry("d", None)], {"key": "id"}, "'before', the old row that it retracts, is null"),
    "no new row": ([entry("u", BOB, None)], {"key": "id"}, "'after', its new row, is null"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_a_row_that_cannot_be_used_is_told_and_takes_nothing_away(name: str) -> None:
    log, choices, why = TOLD[name]
    rows, letters, _ = left([*BASE, entry("c", None, order(9, None, 1)), *log], **choices)
    assert rows == [(1, "x", 5), (2, "x", 7), (9, None, 1)]
    assert len(letters) == 1
    assert why in letters[0]


def test_a_delete_of_a_key_that_is_not_there_is_counted() -> None:
    assert left([*BASE, entry("d", only_key(order(7, "x", 1)))], key="id") == (
        [(1, "x", 5), (2, "x", 7)],
        [],
        1,
    )


def test_a_key_may_have_several_columns() -> None:
    log = [
        entry("c", None, order(1, "x", 5)),
        entry("c", None, order(1, "y", 6)),
        entry("d", order(1, "x", 0)),
    ]
    assert left(log, key=["id", "shop"]) == ([(1, "y", 6)], [], 0)
    assert (
        "the key 'shop' is null in 'before'"
        in left([*log, entry("d", only_key(BOB))], key=["id", "shop"])[1][0]
    )


def test_a_run_that_continues_finds_rows_of_the_run_before(tmp_path: Path) -> None:
    struct = {"id": int, "shop": str, "cents": int}
    schema = {"op": str, "before": struct, "after": struct, "at": int}
    out = bl.Memory()

    def run(entries: list[Entry], number: int) -> None:
        pl.DataFrame(entries, schema=bl_schema).write_ndjson(tmp_path / "in" / f"{number}.jsonl")
        p = bl.Pipeline("p")
        log = p.read("log", bl.JSONLines(tmp_path / "in", schema), timestamp="at", timestamp_unit="s",
                     watermark=bl.BoundedOutOfOrderness("1h"))  # fmt: skip
        bl.changes(log, key="id").write("out", out)
        p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))

    row = pl.Struct({"id": pl.Int64(), "shop": pl.String(), "cents": pl.Int64()})
    bl_schema = {"op": pl.String(), "before": row, "after": row, "at": pl.Int64()}
    (tmp_path / "in").mkdir()
    run(BASE, 0)
    run([entry("d", only_key(BOB)), entry("u", None, order(1, NOT_SENT, 6))], 1)
    found = [(one["id"], one["shop"], one["cents"], one["pane_retracted"]) for one in out.rows()]
    assert found[-3:] == [(2, "x", 7, True), (1, "x", 5, True), (1, "x", 6, False)]


def test_a_flat_log_finds_rows_by_their_key_too() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = [("+I", 1, "a"), ("+I", 2, "b"), ("+U", 1, "c"), ("-D", 2, None)]
    source = bl.Rows([{"op": op, "id": id, "v": v, "at": 0} for op, id, v in rows])
    log = p.read("log", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    bl.changes(log, before=None, after=None, key="id").select("id", "v").write("out", out)
    p.run()
    found = [(row["id"], row["v"], row["pane_retracted"]) for row in out.rows()]
    assert found == [(1, "a", False), (2, "b", False), (1, "a", True), (1, "c", False), (2, "b", True)]


def test_a_retraction_has_the_time_of_its_row() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    row = pl.Struct({"id": pl.Int64(), "on": pl.Int64()})
    log = [
        ("c", None, {"id": 1, "on": 5}),
        ("c", None, {"id": 2, "on": 65}),
        ("d", {"id": 1, "on": None}, None),
    ]
    given = [{"op": op, "before": old, "after": new, "at": 70} for op, old, new in log]
    source = bl.Rows(given, schema={"op": str, "before": row, "after": row, "at": int})
    read = p.read("log", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h"))
    changes = bl.changes(read, key="id", timestamp="on", timestamp_unit="s", allowed_skew="2m")
    changes.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", out)
    p.run()
    assert [(one["window_start"].minute, one["n"]) for one in out.rows()] == [(1, 1)]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("idd", "did you mean 'id'"),
        (["id", "id"], "is given twice"),
        ([], "at least one"),
        (7, "is named by a string"),
    ],
)
def test_a_key_that_the_table_lacks_is_refused(key: Any, told: str) -> None:
    with pytest.raises((bl.PlanError, TypeError), match=told):
        left(BASE, key=key)


def test_the_helper_step_is_named_with_its_stage() -> None:
    p = bl.Pipeline("p")
    read(p, [BASE], key="id").named("orders").write("out", bl.Memory())
    assert "orders.log" in p.explain()
    assert [*p.plan().stages] == ["orders"]
