"""Logs of changes: inserted, updated and deleted rows of a table, as a database writes them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Part, output_frame
from beamlike.testing.player import Recorder
from tests.support.examples import share
from tests.support.shards import Query

ROW = pl.Struct({"id": pl.Int64(), "shop": pl.String(), "cents": pl.Int64()})
LOG: dict[str, Any] = {"op": str, "before": ROW, "after": ROW, "at": int}
EACH: dict[str, Any] = {"trigger": bl.Repeatedly(bl.AfterCount(1)), "accumulation": "retracting"}

Entry = dict[str, Any]


def order(id: int, shop: str | None, cents: int) -> Entry:
    return {"id": id, "shop": shop, "cents": cents}


def entry(op: str | None, before: Entry | None = None, after: Entry | None = None) -> Entry:
    return {"op": op, "before": before, "after": after, "at": 0}


def read(
    p: bl.Pipeline, bundles: Sequence[Sequence[Entry]], name: str = "log", **choices: Any
) -> bl.Collection:
    stream = bl.TestStream(LOG)
    for rows in bundles:
        stream = stream.add_elements(rows)
    log = p.read(name, stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    return bl.changes(log, **choices)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Entry]]:
    """Draws the log of a table, in bundles."""
    table: dict[int, Entry] = {}
    bundles: list[list[Entry]] = []
    for ids in draw(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=5)):
        rows = []
        for id in ids:
            before = table.pop(id, None)
            if before is None or draw(st.booleans()):
                table[id] = order(id, draw(st.sampled_from("xy")), draw(st.integers(0, 3)))
            op = "c" if before is None else "u" if id in table else "d"
            rows.append(entry(op, before, table.get(id)))
        bundles.append(rows)
    return bundles


def tables(bundles: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """Returns the rows of the table after each bundle."""
    table: dict[int, Entry] = {}
    found = []
    for rows in bundles:
        for row in rows:
            if row["after"] is None:
                del table[row["before"]["id"]]
            else:
                table[row["after"]["id"]] = row["after"]
        found.append(list(table.values()))
    return found


def expected(table: Sequence[Entry], names: Mapping[str, str]) -> Counter[tuple[Any, ...]]:
    shops: dict[Any, list[int]] = {}
    for row in table:
        shops.setdefault(row["shop"], []).append(row["cents"])
    return Counter(
        (shop, len(cents), sum(cents), max(cents), names.get(shop)) for shop, cents in shops.items()
    )


@pytest.mark.parametrize("shards", [0, 3])
@share(3)
@given(histories())
def test_aggregates_and_joins_of_a_table_are_live(shards: int, bundles: list[list[Entry]]) -> None:
    p, recorder = bl.Pipeline("shops"), Recorder()
    orders = read(p, bundles).window_into(**EACH)
    totals = orders.group_by("shop").aggregate(n=bl.count(), sum=bl.sum("cents"), most=bl.max("cents"))
    # The cheapest order of a shop names it: a second table, which changes with the first.
    named = orders.filter(bl.col("cents") == 0).group_by("shop").aggregate(name=bl.min("shop"))
    totals.join(named, on="shop", how="left").write("out", recorder)
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
            key = tuple(row[name] for name in ("shop", "n", "sum", "most", "name"))
            net[key] += -1 if row["pane_retracted"] else 1
        names = {row["shop"]: row["shop"] for row in table if row["cents"] == 0}
        assert +net == expected(table, names)
        assert all(count >= 0 for count in net.values())


@share(4)
@given(histories())
def test_upserted_tables_have_the_rows_that_are_left(
    tmp_path_factory: pytest.TempPathFactory, bundles: list[list[Entry]]
) -> None:
    file = tmp_path_factory.mktemp("table") / "shops.db"
    p = bl.Pipeline("shops")
    orders = read(p, bundles).window_into(**EACH)
    totals = orders.group_by("shop").aggregate(sum=bl.sum("cents"))
    cheap = orders.filter(bl.col("cents") == 0).group_by("shop", "id").aggregate(none=bl.count())
    written = {
        "totals": totals.filter(bl.col("sum") != 1),
        "pairs": orders.select("shop", "cents").distinct(),
        "newest": orders.latest("id").select("id", "cents"),
        "joined": totals.join(cheap, on="shop", how="left").select("shop", "sum", order="id"),
        "without": totals.join(cheap, on="shop", how="anti"),
    }
    for name, rows in written.items():
        rows.write(name, bl.Table(f"sqlite:///{file}", f"{name} of shops"), columns=list(rows.schema))
    p.run()
    with closing(sqlite3.connect(file)) as db:
        found = {name: sorted(db.execute(f"SELECT * FROM '{name} of shops'"), key=str) for name in written}
    left = tables(bundles)[-1]
    sums = Counter[str]()
    for row in left:
        sums[row["shop"]] += row["cents"]
    cheapest = {
        shop: [row["id"] for row in left if (row["shop"], row["cents"]) == (shop, 0)] for shop in sums
    }
    assert found == {
        "totals": sorted(((shop, total) for shop, total in sums.items() if total != 1), key=str),
        "pairs": sorted({(row["shop"], row["cents"]) for row in left}, key=str),
        "newest": sorted(((row["id"], row["cents"]) for row in left), key=str),
        "joined": sorted(
            ((shop, sums[shop], id) for shop, ids in cheapest.items() for id in ids or [None]), key=str
        ),
        "without": sorted(((shop, sums[shop]) for shop, ids in cheapest.items() if not ids), key=str),
    }


def test_entries_that_say_nothing_new_are_left_out_and_those_that_cannot_be_used_are_dead_letters() -> None:
    p, letters, out = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    rows = [
        entry("c", None, order(1, "x", 1)),
        entry(None),  # a tombstone
        entry(None, None, order(1, "x", 1)),
        entry("d", None, None),
        entry("u", None, order(1, "x", 2)),
        entry("r", order(1, "x", 1), None),
        entry("t"),
        entry("q", order(1, "x", 1), order(1, "x", 2)),
    ]
    changes = read(p, [rows])
    changes.write("out", out)
    changes.dead_letters().write("letters", letters)
    assert changes.dead_letters().node.kind == "rows"
    p.run()
    assert out.frame().select("id", "pane_retracted").rows() == [(1, False)]
    told = letters.frame()["error"].to_list()
    for error, part in zip(
        told,
        [
            "'op' is null; it must be one of 'c', 'r', 'u', 'insert', 'update', 'd', 'delete'",
            "'op' is 'd', but 'before', the old row that it retracts, is null; the database must log it (in PostgreSQL",
            "'op' is 'u', but 'before', the old row that it retracts, is null",
            "'op' is 'r', but 'after', its new row, is null",
            "'op' is 't'; the rows of a table that was emptied are not in the log",
            "'op' is 'q'; it must be one of",
        ],
        strict=True,
    ):
        assert error.startswith(part)


def flat(p: bl.Pipeline, rows: Sequence[Entry], **choices: Any) -> bl.Collection:
    source = bl.Rows(rows, schema={"op": type(rows[0]["op"]), "v": int, "at": int})
    log = p.read("log", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h"))
    return bl.changes(log, before=None, after=None, **choices)


@pytest.mark.parametrize(
    "ops", [("+I", "-U", "+U", "-D"), ("insert", "delete", "insert", "delete"), (False, True, False, True)]
)
def test_each_row_of_a_log_may_be_one_change(ops: Sequence[Any]) -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    changes = flat(p, [{"op": op, "v": v, "at": 0} for op, v in zip(ops, (1, 1, 2, 2), strict=True)])
    changes.select("v").write("out", out)
    p.run()
    assert out.frame().select("v", "pane_retracted").rows() == [(1, False), (1, True), (2, False), (2, True)]


def test_rows_may_have_a_time_of_their_own() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    times = [("c", 1, 1), ("c", 2, 61), ("c", 3, 62), ("c", 4, -100), ("d", 2, 61)]
    source = bl.Rows([{"op": op, "v": v, "at": at} for op, v, at in times])
    log = p.read(
        "log", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h")
    ).with_columns(at=bl.col("at") - 5)
    choices: dict[str, Any] = {"before": None, "after": None, "allowed_skew": "5s"}
    changes = bl.changes(log, timestamp="at", timestamp_unit="s", **choices)
    minutes = changes.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count(), most=bl.max("v"))
    minutes.write("out", out)
    p.run()
    assert out.frame().select("n", "most").rows() == [(1, 4), (1, 1), (1, 3)]
    with pytest.raises(bl.PlanError, match="is for event times of timestamp="):
        bl.changes(log, **choices)


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"op": "opp"}, "op= names it"),
        ({"before": "old"}, "if each row of the log is one change, give before=None and after=None"),
        ({"before": None}, "give both before= and after="),
        ({"op": "at"}, "'at' must be text such as 'c', 'u' or 'd', not Int64"),
        ({"after": "at"}, "'at' must be a struct with a row, not Int64"),
        ({"after": "source"}, r"must have the same columns; 'before' has .* and 'source' has name String"),
        ({"before": None, "after": None, "op": "at"}, "or Boolean, true for a row that is retracted"),
        ({"timestamp": "at"}, "timestamp= names the column with the event time"),
        ({"timestamp_unit": "s"}, "which is not given"),
    ],
)
def test_a_log_that_does_not_fit_is_refused(choices: dict[str, Any], told: str) -> None:
    p = bl.Pipeline("p")
    schema = {**LOG, "source": pl.Struct({"name": pl.String()})}
    log = p.read("log", bl.TestStream(schema), timestamp="at", timestamp_unit="s")
    with pytest.raises(bl.PlanError, match=told):
        bl.changes(log, **choices)
    changes = bl.changes(log)
    with pytest.raises(
        bl.PlanError, match="are changes, but the rows of a log must not retract or repeat each other"
    ):
        bl.changes(changes.with_columns(before=bl.lit(None)))
