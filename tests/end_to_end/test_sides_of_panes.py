"""Sides whose panes have all elements so far: a row reads the newest pane of each key, in every kind of side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import PlanError

BATCHES = 2
SIDE = {"key": str, "part": str, "v": int, "at": int}
Make = Callable[[bl.Collection], bl.Collection]

EARLY: dict[str, Any] = {"trigger": bl.Repeatedly(bl.AfterCount(1)), "on_time": "if_non_empty"}


def side_rows(batch: int) -> list[dict[str, Any]]:
    """Returns rows whose values fall and rise, and whose event times are not in order."""
    values = [(batch * 7 + number * 5) % 11 for number in range(4)]
    return [{"key": "abab"[number], "part": "xxyy"[number], "v": v, "at": 10 * batch + (7 * v) % 10}
            for number, v in enumerate(values)]  # fmt: skip


def streams(bundle: int) -> tuple[bl.TestStream, bl.TestStream]:
    """Returns a side and rows, in turns. The side arrives in bundles of this size."""
    side, rows = bl.TestStream(SIDE), bl.TestStream({"i": int, "at": int})
    for batch in range(BATCHES):
        new = side_rows(batch)
        for first in range(0, len(new), bundle):
            side = side.add_elements(new[first : first + bundle])
            rows = rows.add_elements([{"i": batch, "at": 10 * batch + 5}] if not first else [])
    return side.advance_watermark_to_infinity(), rows.advance_watermark_to_infinity()


def totals(c: bl.Collection, *keys: str) -> bl.Collection:
    return c.group_by(*keys).aggregate(v=bl.last("v"), n=bl.count())


CHAINS: dict[str, Make] = {
    "a key": lambda c: totals(c, "key"),
    "keys": lambda c: totals(c, "key", "part"),
    "no key": lambda c: c.aggregate(v=bl.last("v"), n=bl.count()),
    "without the key": lambda c: totals(c, "key").select("v"),
    "computed": lambda c: totals(c, "key").with_columns(v=bl.col("v") * 2).select("v", "n"),
    "the key renamed": lambda c: totals(c, "key").select(who="key", v="v").drop("who"),
    "filtered": lambda c: totals(c, "key").filter(bl.col("v") > 4),
    "mapped": lambda c: totals(c, "key").map(lambda row: {"v": row["v"] + 1}, {"v": int}),
    "several of one": lambda c: totals(c, "key").flat_map(lambda row: [{"v": row["v"]}] * (row["v"] % 3), {"v": int}),
    "exploded": lambda c: c.group_by("key").aggregate(v=bl.collect("v")).explode("v"),
    "configured": lambda c: totals(c, "key").window_into(trigger=bl.Repeatedly(bl.AfterCount(1))),
    "latest": lambda c: c.latest("key").select("v"),
    "structs": lambda c: c.group_by("key").aggregate(v=bl.last("v"), both=bl.collect("part")),
}  # fmt: skip


class Reading(bl.Process):
    side: Any

    def element(self, row: dict[str, Any]) -> Any:
        yield {"i": row["i"], "seen": sorted(map(str, self.side))}


def as_map(side: Any) -> Callable[[bl.Collection], bl.Collection]:
    return lambda rows: rows.map(lambda row, side: {"i": row["i"], "seen": sorted(map(str, side))},
                                 {"i": int, "seen": list[str]}, side={"side": side})  # fmt: skip


def looked_up(c: bl.Collection) -> Make:
    return lambda rows: rows.with_columns(key=bl.lit("a")).with_columns(
        seen=bl.lookup(c, on="key")["v"]
    ).select("i", "seen")  # fmt: skip


def in_batches(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame, side: Any) -> Any:
    return rows.select("i", seen=pl.lit(sorted(map(str, side)), pl.List(pl.String))), state


VIEWS: dict[str, Callable[[bl.Collection], Make]] = {
    "list": lambda c: as_map(bl.as_list(c)),
    "list of values": lambda c: as_map(bl.as_list(c, "v")),
    "dict": lambda c: lambda rows: rows.map(
        lambda row, side: {"i": row["i"], "seen": str(sorted(side.items()))},
        {"i": int, "seen": str}, side={"side": bl.as_dict(c, "key", "v")},
    ),
    "dict by a value": lambda c: lambda rows: rows.map(
        lambda row, side: {"i": row["i"], "seen": sorted(side)},
        {"i": int, "seen": list[int]}, side={"side": bl.as_dict(c, "n")},
    ),
    "singleton": lambda c: lambda rows: rows.map(
        lambda row, side: {"i": row["i"], "seen": side},
        {"i": int, "seen": int}, side={"side": bl.as_singleton(c.filter(bl.col("key") == "a").select("v"), "v")},
    ),
    "singleton of an expression": lambda c: lambda rows: rows.with_columns(
        seen=bl.as_singleton(c.filter(bl.col("key") == "b"))["v"]
    ).select("i", "seen"),
    "lookup": looked_up,
    "process": lambda c: lambda rows: rows.with_columns(k=bl.lit(1)).group_by("k").process(
        Reading(), {"i": int, "seen": list[str]}, side={"side": bl.as_list(c)}, order="arrival"
    ),
    "flat_map": lambda c: lambda rows: rows.flat_map(
        lambda row, side: [{"i": row["i"], "seen": one["v"]} for one in side], {"i": int, "seen": int},
        side={"side": bl.as_list(c)},
    ),
    "filter": lambda c: lambda rows: rows.filter(
        lambda row, side: sum(side) % 2 == 0, side={"side": bl.as_list(c, "v")}
    ).with_columns(seen=bl.lit(1)),
}  # fmt: skip


def read_all(
    made: dict[str, tuple[Make, Callable[[bl.Collection], Make]]],
    accumulation: str,
    bundle: int,
    **choices: Any,
) -> dict[str, list[Any]]:
    """Plays a pipeline in which rows read sides, each made by a chain and read in a view. Returns what they saw."""
    p = bl.Pipeline("p")
    side_stream, row_stream = streams(bundle)
    time: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s"}
    side = p.read("side", side_stream, **time).window_into(accumulation=accumulation, **{**EARLY, **choices})
    rows = p.read("rows", row_stream, **time)
    if "windows" in choices:
        rows = rows.window_into(choices["windows"])
    out, letters = {name: bl.Memory() for name in made}, {name: bl.Memory() for name in made}
    for name, (chain, view) in made.items():
        read = view(chain(side))(rows)
        read.select("i", "seen").write(name, out[name])
        read.dead_letters().write(f"letters of {name}", letters[name])
    p.run()
    assert [one for each in letters.values() for one in each.rows()] == []
    return {name: sorted((row["i"], str(row["seen"])) for row in one.rows()) for name, one in out.items()}


def read(
    chain: Make, view: Callable[[bl.Collection], Make], accumulation: str, bundle: int, **choices: Any
) -> Any:
    return read_all({"out": (chain, view)}, accumulation, bundle, **choices)["out"]


@pytest.mark.parametrize("bundle", [3, 4])
def test_a_list_has_the_newest_panes_as_of_changes(bundle: int) -> None:
    chains = CHAINS if bundle == 4 else {name: CHAINS[name] for name in ("filtered", "without the key")}
    made = {name: (chain, VIEWS["list"]) for name, chain in chains.items()}
    found = read_all(made, "accumulating", bundle)
    assert found == read_all(made, "retracting", bundle)
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(chains, BATCHES)


def test_every_kind_of_side_has_the_newest_panes() -> None:
    made = {name: (CHAINS["a key"], view) for name, view in VIEWS.items()}
    found = read_all(made, "accumulating", 4)
    assert found == read_all(made, "retracting", 4)
    assert all(found.values())


@pytest.mark.parametrize("combiner", ["earliest", "latest", "end_of_window"])
def test_the_newest_pane_is_the_last_one_whatever_its_time(combiner: str) -> None:
    found = read(CHAINS["a key"], VIEWS["dict"], "accumulating", 4, timestamp_combiner=combiner)
    newest = {row["key"]: row["v"] for row in sorted(side_rows(0), key=lambda row: row["at"])}
    assert found[0] == (0, str(sorted(newest.items())))
    assert found == read(CHAINS["a key"], VIEWS["dict"], "retracting", 4, timestamp_combiner=combiner)


def test_each_window_has_its_newest_panes() -> None:
    windows = {"windows": bl.FixedWindows("10s"), "trigger": bl.AfterWatermark(early=bl.AfterCount(1))}
    made = {name: (CHAINS["a key"], VIEWS[name]) for name in ("list", "dict", "lookup", "process")}
    found = read_all(made, "accumulating", 2, **windows)
    assert found == read_all(made, "retracting", 2, **windows)
    assert all(len(rows) == BATCHES for rows in found.values())


def united(c: bl.Collection) -> bl.Collection:
    return bl.flatten(totals(c, "key").select("key", "v"), totals(c, "part").select("v", key="part"))


UNKNOWN: dict[str, Make] = {
    "united": united,
    "after a process": lambda c: totals(c, "key").group_by("key").process(
        Passing(), {"key": str, "v": int}, order="arrival"
    ),
    "after sessions": lambda c: totals(c.window_into(bl.Sessions(gap="5s")), "key").window_into(bl.GlobalWindows()),
}  # fmt: skip


class Passing(bl.Process):
    def element(self, row: dict[str, Any]) -> Any:
        yield {"key": row["key"], "v": row["v"]}


@pytest.mark.parametrize("chain", UNKNOWN)
def test_panes_whose_key_is_not_known_are_refused_unless_they_are_accepted(chain: str) -> None:
    for view in ("list", "singleton", "process"):
        with pytest.raises(PlanError, match=r"the newest of a key is not known.*allow_repeats"):
            read(UNKNOWN[chain], VIEWS[view], "accumulating", 1)
    assert read(UNKNOWN[chain], VIEWS["dict"], "accumulating", 1)
    accepted = read(
        lambda c: UNKNOWN[chain](c).window_into(allow_repeats=True), VIEWS["list"], "accumulating", 1
    )
    assert len(accepted) == BATCHES


def test_a_growing_list_of_panes_is_refused() -> None:
    with pytest.raises(PlanError, match="its panes have all elements so far"):
        read(CHAINS["a key"], lambda c: as_map(bl.as_list(c, growing=True)), "accumulating", 1)


def test_rows_have_only_the_columns_of_the_side() -> None:
    found = read(CHAINS["a key"], VIEWS["list"], "accumulating", 4)
    assert "__" not in str(found)


def test_helper_stages_are_named_with_their_step() -> None:
    p = bl.Pipeline("p")
    side_stream, row_stream = streams(1)
    side = p.read("side", side_stream, timestamp="at", timestamp_unit="s").window_into(
        accumulation="accumulating", **EARLY
    )
    rows = p.read("rows", row_stream, timestamp="at", timestamp_unit="s")
    VIEWS["list"](totals(side, "key").named("totals"))(rows).named("seen").write("out", bl.Memory())
    assert {*p.plan().stages} == {"totals", "seen", "seen.totals", "seen.totals.newest"}
