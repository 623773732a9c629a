"""The row keys of tables, and pipelines whose rows cannot be distinguished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.io.sinks import RowKey
from beamlike.logical.row_key import row_key
from tests.support.pipelines import plays

WINDOW = ("window_start", "window_end")
SESSIONS = {"windows": bl.Sessions("5m")}
EARLY = {"trigger": bl.AfterWatermark(early=bl.AfterCount(1))}
FULL = {"accumulation": bl.ACCUMULATING}


def totals(*keys: str, **windowing: Any) -> bl.Collection:
    """Returns totals per user and minute, or by the given keys and windowing."""
    before = plays().window_into(**({"windows": bl.FixedWindows("1m")} | windowing))
    return before.group_by(*keys or ("user",)).aggregate(n=bl.count())


def joined(*keys: str, how: Any = "inner", then: Any = None, **windowing: Any) -> bl.Collection:
    """Returns totals per user and `won`, joined to totals of the same rows by these keys with the options `then`."""
    before = plays().window_into(bl.FixedWindows("1m"), **windowing)
    sides = (
        before.group_by("won", "user").aggregate(m=bl.count()),
        before.group_by(*keys).aggregate(n=bl.count()),
    )
    left, right = (side.window_into(**then) for side in sides) if then else sides
    return left.join(right, on="won", how=how)


def self_joined(rows: bl.Collection) -> bl.Collection:
    return rows.join(rows.select("user"), on="user")


def same(table: Any) -> Any:
    return table


KEYS: dict[str, tuple[Callable[[], bl.Collection], RowKey]] = {
    "keys and window": (totals, RowKey(("user", *WINDOW), "pane_index", None)),
    "several keys": (
        lambda: totals("user", "won"),
        RowKey(("user", "won", *WINDOW), "pane_index", None),
    ),
    "no key": (
        lambda: plays().window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()),
        RowKey(WINDOW, "pane_index", None),
    ),
    "the global window": (lambda: totals(windows=bl.GlobalWindows()), RowKey(("user",), "pane_index", None)),
    "taken back": (
        lambda: totals(accumulation=bl.RETRACTING, allowed_lateness="1m"),
        RowKey(("user", *WINDOW), "pane_index", "pane_retracted"),
    ),
    "a filter": (lambda: totals().filter(bl.col("n") > 1), RowKey(("user", *WINDOW), "pane_index", None)),
    "renamed": (
        lambda: totals().select("n", who=bl.col("user"), till=bl.window_end()),
        RowKey(("who", *WINDOW), "pane_index", None),
    ),
    "the user's own copies": (
        lambda: totals().select("user", bl.window_end(), bl.pane_index()),
        RowKey(("user", *WINDOW), "pane_index", None),
    ),
    "a copy is enough": (
        lambda: totals().with_columns(who="user").with_columns(user=bl.lit("x")),
        RowKey(("who", *WINDOW), "pane_index", None),
    ),
    "a function": (lambda: totals().map(same), RowKey(("user", *WINDOW), "pane_index", None)),
    "a function of batches": (
        lambda: totals().map_batches(same),
        RowKey(("user", *WINDOW), "pane_index", None),
    ),
    "other choices": (
        lambda: totals().window_into(allowed_lateness="1m"),
        RowKey(("user", *WINDOW), "pane_index", None),
    ),
    "pane index hidden": (
        lambda: totals().with_columns(pane_index=bl.lit(1)),
        RowKey(("user", *WINDOW), None, None),
    ),
    "the newest row": (
        lambda: plays().window_into(bl.GlobalWindows()).latest("user").select("won", who="user"),
        RowKey(("who",), "pane_index", None),
    ),
    "distinct rows": (
        lambda: totals().select("user", "n").distinct().rename({"n": "plays"}),
        RowKey(("user", "plays", *WINDOW), None, None),
    ),
    "pairs of a join": (lambda: joined("won"), RowKey(("won", "user", *WINDOW), "pane_index", None)),
    "pairs of both sides": (
        lambda: joined("won", "user", how="full"),
        RowKey(("won", "user", "user_right", *WINDOW), "pane_index", None),
    ),
    "left rows of a join": (
        lambda: joined("won", "user", how="anti"),
        RowKey(("won", "user", *WINDOW), "pane_index", None),
    ),
    "pairs that are taken back": (
        lambda: joined("won", accumulation=bl.RETRACTING, **EARLY),
        RowKey(("won", "user", *WINDOW), None, "pane_retracted"),
    ),
    "sessions of one pane": (lambda: totals(**SESSIONS), RowKey(("user", *WINDOW), "pane_index", None)),
    "sessions that were merged before": (
        lambda: totals(**SESSIONS).window_into(**EARLY, **FULL).group_by("user").aggregate(n=bl.sum("n")),
        RowKey(("user", *WINDOW), "pane_index", None),
    ),
}


@pytest.mark.parametrize("what", KEYS)
def test_a_row_is_known_by_keys_and_window(what: str) -> None:
    make, key = KEYS[what]
    assert row_key(make().node, "out", per_pane=False) == key


REFUSED: dict[str, tuple[Callable[[], bl.Collection], str]] = {
    "rows of a source": (
        plays,
        "the sink 'out' has a row per key and window of a grouping, which a later one replaces, and 'plays' is no "
        "output of one; keep the newest row of each key by .latest('user'), with its columns, or write it to a sink "
        "that appends, such as bl.Table(..., mode='append')",
    ),
    "late elements": (
        lambda: totals().late(),
        "'plays.aggregate.late' has elements, not the rows of a grouping",
    ),
    "flatten": (
        lambda: bl.flatten(*[plays(p, name) for p in [bl.Pipeline("p")] for name in ("x", "y")]),
        "has the rows of several collections",
    ),
    "flat_map": (
        lambda: totals().flat_map(lambda row: [row]),
        "'plays.aggregate.flat_map' makes several rows of one",
    ),
    "other windows": (
        lambda: totals().window_into(bl.FixedWindows("1h")),
        "puts the rows of several windows into one",
    ),
    "nothing names the row": (
        lambda: plays().aggregate(n=bl.count()),
        "'plays.aggregate' has neither keys nor windows, so nothing names its row; group by a constant column",
    ),
    "no key left": (
        lambda: totals("user", "won").select("n", "user"),
        "'plays.aggregate' has a row for each user, won, and the key 'won' is not among the columns any more",
    ),
    "a key computed anew": (
        lambda: totals().with_columns(user=bl.col("user").str.to_lowercase()),
        "the key 'user' is not among the columns any more, or was computed again; keep it in select(...)",
    ),
    "a key of another type": (
        lambda: totals().map(same, {"user": int}),
        "the key 'user' is not among the columns any more",
    ),
    "the window hidden": (
        lambda: totals().with_columns(window_end=bl.lit("soon")),
        "its column 'window_end' is not bl.window_end(), which the sink needs to distinguish rows; rename it",
    ),
    "retractions hidden": (
        lambda: totals(accumulation=bl.RETRACTING, **EARLY).with_columns(pane_retracted=bl.lit(False)),
        "its column 'pane_retracted' is not bl.pane_retracted()",
    ),
    "parts replace parts": (
        lambda: totals(**EARLY),
        "the panes of 'plays.aggregate' have only new elements (accumulation discarding)",
    ),
    "pairs of rows": (
        lambda: self_joined(plays().window_into(bl.FixedWindows("1m"))),
        "'plays.window_into' puts the rows of several windows into one",
    ),
    "pairs that a later pane may lack": (
        lambda: joined("won", then=EARLY | FULL),
        "a later pane of 'plays.aggregate.join' may lack rows of an earlier one, which would stay in 'out'; give it "
        "accumulation=bl.RETRACTING",
    ),
    "parts of late panes": (lambda: totals(allowed_lateness="1m"), "give it accumulation=bl.ACCUMULATING"),
    "sessions of changes that grow": (
        lambda: (
            totals(**EARLY, accumulation=bl.RETRACTING)
            .window_into(bl.Sessions("5m"), **FULL)
            .group_by("user")
            .aggregate(n=bl.count())
        ),
        "windows of Sessions(gap=5m) grow from pane to pane",
    ),
    "sessions that grow": (
        lambda: totals(**SESSIONS, **EARLY, **FULL),
        "windows of Sessions(gap=5m) grow from pane to pane, and rows for the earlier bounds of "
        "windows of 'plays.aggregate' would stay; give it accumulation=bl.RETRACTING, or the sink per_pane=True",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_rows_that_cannot_be_told_apart_are_refused(what: str) -> None:
    make, says = REFUSED[what]
    with pytest.raises(PlanError) as caught:
        make().write("out", bl.Table("sqlite:///x.db", "t"))
    assert str(caught.value).startswith("step 'out': ")
    assert says in str(caught.value)


def test_with_a_row_per_pane_or_appended_they_are_taken() -> None:
    for make in (lambda: totals(**EARLY), lambda: totals(**SESSIONS, **EARLY, **FULL)):
        key = row_key(make().node, "out", per_pane=True)
        assert key.columns == ("user", *WINDOW, "pane_index")
    with pytest.raises(PlanError, match=r"'pane_index' is not bl.pane_index\(\)"):
        row_key(totals().with_columns(pane_index=bl.lit(1)).node, "out", per_pane=True)
    for what, (make, _) in REFUSED.items():
        make().write(f"{what}, out", bl.Table("sqlite:///x.db", "t", mode="append"))


def test_two_sinks_do_not_share_a_table() -> None:
    (url,) = ["sqlite:///x.db"]
    rows = totals().write("first", bl.Table(url, "t"))
    rows.write("second", bl.Table(url, "u"))
    with pytest.raises(
        PlanError, match="step 'third': writes to table 't', and so does 'first'; give it a table"
    ):
        rows.write("third", bl.Table(url, "t", mode="append"))


def test_a_function_that_changes_keys_is_found_out_in_the_batch(tmp_path: Any) -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"user": "a", "at": 1}, {"user": "b", "at": 2}])
    read = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    counts.map(lambda row: row | {"user": "all"}).write("out", bl.Table(f"sqlite:///{tmp_path}/x.db", "t"))
    with pytest.raises(
        bl.SinkError, match=r"sink 'out': batch .*two rows of one pane have the same user, window_start"
    ):
        p.run()
