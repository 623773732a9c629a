"""A top n of SQL in a table that replaces rows: the table has the rows of the query after each run."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl

SALES = [
    {"shop": shop, "product": product, "qty": qty, "at": f"2026-01-01T0{hour}:{minute:02}:00Z"}
    for minute, (hour, shop, product, qty) in enumerate(
        [
            *((8, "x", "a", 1), (8, "x", "b", 2), (8, "y", "c", 3), (8, "x", "a", 5), (8, "y", "d", 9)),
            *((8, "x", "e", 4), (9, "x", "a", 2), (9, "y", "b", 8), (9, "y", "c", 1), (9, "x", "d", 7)),
        ]
    )
]
TOTALS = """SELECT product, shop, window_start AS hour, SUM(qty) AS qty FROM sales
    GROUP BY product, shop, TUMBLE(at, INTERVAL '1' HOUR) {emit}"""
RANKED = """SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (
    PARTITION BY {keys} ORDER BY {order}) AS n FROM ({totals})) WHERE n {limit}"""
EARLY = "EMIT EARLY EVERY 1 ROWS RETRACTING"
LATE = "EMIT EARLY EVERY 2 ROWS LATE EVERY 1 ROWS WITH LATENESS INTERVAL '1' HOUR RETRACTING"


def query(
    emit: str = EARLY,
    keys: str = "hour",
    order: str = "qty DESC",
    limit: str = "<= 2",
    columns: str = "hour, n, product",
) -> str:
    totals = TOTALS.format(emit=emit)
    return RANKED.format(columns=columns, keys=keys, order=order, totals=totals, limit=limit)


def declared(text: str, rows: list[dict[str, Any]], rows_per_batch: int | None) -> bl.Collection:
    source = bl.Rows(rows, rows_per_batch=rows_per_batch)
    watermark = bl.BoundedOutOfOrderness("1h")
    return bl.sql(text, sales=bl.Pipeline("top").read("sales", source, timestamp="at", watermark=watermark))


def in_table(made: bl.Collection, folder: Path) -> list[tuple[Any, ...]]:
    made.write("table", bl.Table(f"sqlite:///{folder}/top.db", "top"))
    made.pipeline.run(bl.LocalRunner(quiet=True))
    with sqlite3.connect(folder / "top.db") as connection:
        names = [name for name in made.schema if name != "hour"]
        return sorted(connection.execute(f"SELECT hour, {', '.join(names)} FROM top").fetchall())


CASES = {
    "a top two of each hour": {},
    "the first alone": {"limit": "= 1"},
    "more than there are": {"limit": "<= 20"},
    "less than": {"limit": "< 3"},
    "the least": {"order": "qty"},
    "by two columns": {"order": "qty DESC, product DESC"},
    "of each shop": {"keys": "hour, shop", "columns": "hour, shop, n, product"},
    "with all columns": {"columns": "*"},
    "with panes at the end of windows alone": {"emit": ""},
    "with late panes": {"emit": LATE},
    "with the rank under another name": {"columns": "hour, n AS place, product"},
    "with a further condition": {"columns": "hour, n, product", "limit": "<= 3 AND qty > 2"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_table_has_the_rows_of_a_top_n(case: str, tmp_path: Path) -> None:
    size = 1 + len(case) % 3
    text = query(**CASES[case])
    found = in_table(declared(text, SALES, size), tmp_path)
    # The panes at the end of the windows, without any before, are the rows that are right.
    final = query(**{**CASES[case], "emit": ""})
    expected = declared(final, SALES, None).collect()
    assert len(found) == len(expected) > 0
    names = [name for name in expected.columns if name in ("n", "place", "product", "shop")]
    columns = [name for name in declared(final, SALES, None).schema if name != "hour"]
    shown = sorted(tuple(row[columns.index(name) + 1] for name in names) for row in found)
    assert shown == sorted(expected.select(names).rows())


REFUSED = {
    "a rank that is not selected": (query(columns="hour, product"), ".latest("),
    "a partition that is not selected": (
        query(columns="n, product"),
        "the key 'hour' is not among the columns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_top_n_without_a_key_is_refused_with_what_to_do(case: str) -> None:
    text, told = REFUSED[case]
    made = declared(text, SALES, 1)
    with pytest.raises(bl.PlanError) as caught:
        made.write("table", bl.Table("sqlite:///top.db", "top"))
    assert told in str(caught.value)


def test_items_of_lists_that_may_become_shorter_need_retractions() -> None:
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    sales = declared("SELECT * FROM sales", SALES, 1).window_into(bl.FixedWindows("1h"), trigger=early)
    for accumulation, refused in (("accumulating", True), ("discarding", True), ("retracting", False)):
        panes = sales.window_into(accumulation=accumulation).group_by("shop")
        best = panes.aggregate(best=bl.top("product", 2, by="qty")).explode("best", number="n")
        if refused:
            with pytest.raises(bl.PlanError, match=r"give it accumulation=bl\.RETRACTING"):
                best.write(accumulation, bl.Table("sqlite:///top.db", "top"))
        else:
            best.write(accumulation, bl.Table("sqlite:///top.db", "top"))
