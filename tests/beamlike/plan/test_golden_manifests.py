"""A manifest for each kind of stage, compared with the files in `tests/golden/manifests`.

Manifests are compared with checkpoints of other versions. Change a file only if earlier checkpoints can still be read.
`UPDATE_GOLDEN=1 pytest` rewrites the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.plan.differences import NEW_TABLES, differences
from beamlike.plan.manifest import describe
from beamlike.plan.matching import fitted
from beamlike.plan.model import Plan
from stages.state.store import ENCODING
from tests.stages.aggregates.test_combine_fn import Median
from tests.support.pipelines import Declared
from tests.support.places import ROOT

GOLDEN = ROOT / "tests" / "golden" / "manifests"
MINUTE = bl.FixedWindows("1m")
Make = Callable[[bl.Collection], bl.Collection]


class UntilDeadline(bl.CustomWindows):
    """User-defined windows, as a plain class."""

    columns = ("score",)

    def __init__(self, most: int) -> None:
        self.most = most

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[tuple[int, int]]:
        yield time, time + min(row["score"], self.most)


@attrs.frozen
class Longest(bl.CustomWindows):
    """User-defined windows with fields."""

    most: int
    least: int = 1

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[tuple[int, int]]:
        yield time, time + self.most


class Alerts(bl.Process):
    """A process with state of each kind, and timers."""

    last = bl.Value(int, default=0)
    seen = bl.Set(str, ttl="1h")
    total = bl.Combining(bl.sum("score"))
    quiet = bl.EventTimer()
    soon = bl.ProcessingTimers()

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def element(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        yield {"user": row["user"]}

    def on_quiet(self) -> Iterable[dict[str, Any]]:
        yield {"user": self.key.user}

    def on_soon(self, tag: str) -> Iterable[dict[str, Any]]:
        yield {"user": self.key.user}


def batches(rows: Any, state: Any, due: Any) -> Any:
    return rows, state


def see(row: dict[str, Any], seen: list[Any]) -> bool:
    return bool(seen)


def counted(rows: bl.Collection, **choices: Any) -> bl.Collection:
    return rows.window_into(**choices).group_by("user").aggregate(n=bl.count())


def triggered(trigger: bl.Trigger, **choices: Any) -> Make:
    usual: dict[str, Any] = {"windows": MINUTE, "accumulation": "accumulating", "allowed_lateness": "1h"}
    return lambda rows: counted(rows, trigger=trigger, **{**usual, **choices})


def looked_up(rows: bl.Collection) -> bl.Collection:
    rates = rows.pipeline.read("rates", bl.Rows([{"user": "ada", "rate": 2}]))  # type: ignore[attr-defined]
    rate = bl.lookup(rates.filter(bl.col("rate") > 1), on="user", default={"rate": 1})["rate"]
    return counted(rows.with_columns(rate=rate).filter(bl.col("rate") > 1), windows=MINUTE)


def changing(rows: bl.Collection) -> bl.Collection:
    """Returns counts per user that are corrected."""
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    return counted(rows, windows=MINUTE, trigger=early, accumulation=bl.RETRACTING)


KINDS: dict[str, Make] = {
    "fixed": lambda rows: counted(rows, windows=bl.FixedWindows("1m", offset="5s")),
    "sliding": lambda rows: counted(rows, windows=bl.SlidingWindows("1m", "10s")),
    "sessions": lambda rows: counted(rows, windows=bl.Sessions("1m"), timestamp_combiner=bl.EARLIEST),
    "calendar": lambda rows: counted(rows, windows=bl.CalendarWindows.months(timezone="Europe/Berlin")),
    "custom": lambda rows: counted(rows, windows=UntilDeadline(100)),
    "custom with fields": lambda rows: counted(rows, windows=Longest(100)),
    "global": lambda rows: counted(rows, windows=bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(2))),
    "timestamp of": lambda rows: counted(rows, windows=MINUTE, timestamp_combiner=bl.timestamp_of("won")),
    "AfterWatermark": triggered(bl.AfterWatermark(early=bl.AfterCount(3), late=bl.AfterCount(1))),
    "AfterProcessingTime": triggered(bl.Repeatedly(bl.AfterProcessingTime("10s", align_to="1m"))),
    "AfterAny": triggered(bl.Repeatedly(bl.AfterAny(bl.AfterCount(3), bl.AfterWatermark()))),
    "AfterAll": triggered(bl.Repeatedly(bl.AfterAll(bl.AfterCount(3), bl.AfterWatermark()))),
    "AfterEach": triggered(bl.Repeatedly(bl.AfterEach(bl.AfterCount(3), bl.AfterCount(1)))),
    "OrFinally": triggered(
        bl.Repeatedly(bl.AfterCount(2)).or_finally(bl.AfterWatermark()), allow_data_loss=True
    ),
    "Never": triggered(bl.Never(), on_time="if_non_empty", closing="always"),
    "aggregates": lambda rows: (
        rows.window_into(MINUTE)
        .group_by("user")
        .aggregate(
            n=bl.count(where=(bl.col("score") * 2 > 6) & ~bl.col("won")),
            best=bl.top("user", 3, by="score"),
            middle=bl.quantile("score", 0.25),
            own=bl.combine(Median(), "score", int),
            length=bl.window_length(),
        )
    ),
    "process": lambda rows: (
        rows.window_into(MINUTE).group_by("user").process(Alerts(3), {"user": str}, order="arrival")
    ),
    "process_batches": lambda rows: (
        rows.window_into(MINUTE).group_by("user").process_batches(batches, {"user": str}, state={"best": int})
    ),
    "running": lambda rows: (
        rows.window_into(MINUTE).group_by("user").running(n=bl.sum("score"), before=bl.previous("score"))
    ),
    "dedup": lambda rows: rows.dedup("user", within="1h", by="processing"),
    "distinct": lambda rows: rows.window_into(MINUTE).select("user", "won").distinct(),
    "group_into_batches": lambda rows: (
        rows.window_into(MINUTE).group_by("user").group_into_batches(size=3, max_wait="10s")
    ),
    "cogroup": lambda rows: bl.cogroup(
        one=rows.window_into(MINUTE), other=rows.window_into(MINUTE).filter("won")
    ).by("user"),
    "latest": lambda rows: rows.window_into(MINUTE).latest("user"),
    "join": lambda rows: rows.window_into(MINUTE).join(rows.window_into(MINUTE), on="user", how="left"),
    "interval join": lambda rows: rows.join(
        rows, on="user", within=("-5s", "1m"), how="left", event_time="left"
    ),
    "join_asof": lambda rows: rows.join_asof(rows.filter("won"), on="user", tolerance="1h"),
    "sides": lambda rows: rows.window_into(MINUTE).filter(
        see, side={"seen": bl.as_list(rows.window_into(bl.FixedWindows("1h")))}
    ),
    "tables": looked_up,
    "dedup of changes": lambda rows: changing(rows).dedup("user", within="1h"),
    "sides of changes": lambda rows: changing(rows).filter(
        see, side={"seen": bl.as_list(rows.window_into(bl.FixedWindows("1h"), allowed_lateness="1m"))}
    ),
    "sessions of changes": lambda rows: (
        changing(rows)
        .window_into(bl.Sessions("5m"), timestamp_combiner=bl.EARLIEST)
        .group_by("user")
        .aggregate(n=bl.count())
    ),
    "batches of changes": lambda rows: (
        changing(rows).window_into(MINUTE).group_by("user").group_into_batches(size=3)
    ),
    "watermark": lambda rows: changing(rows).with_watermark(bl.BoundedOutOfOrderness("1h", idle_after="1m")),
}
NEWER = (
    "interval join",
    "dedup of changes",
    "sides of changes",
    "sessions of changes",
    "batches of changes",
    "watermark",
)
"""Kinds that no manifest of version 1 fits."""


@cache
def planned(kind: str) -> Plan:
    """Plans a pipeline with a stage of this kind."""
    return plan_of(KINDS[kind])


def plan_of(make: Make) -> Plan:
    p = bl.Pipeline("p")
    strategy = bl.BoundedOutOfOrderness("5s", idle_after="1m")
    make(p.read("plays", Declared(), timestamp="at", watermark=strategy)).write("out", bl.Memory())
    return p.plan()


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_of_each_kind_of_stage_is_as_it_was(kind: str) -> None:
    file = GOLDEN / f"{kind}.json"
    text = json.dumps(describe(planned(kind), 4), indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert compared(json.loads(file.read_text())) == compared(json.loads(text))


def compared(manifest: Any) -> Any:
    """Returns a manifest without text for people, and without the encoding of state, which has its own tests."""
    if not isinstance(manifest, dict):
        return manifest
    return {name: compared(each) for name, each in manifest.items() if name not in ("text", "encoding")}


def test_each_file_is_of_a_kind_and_no_two_kinds_fit_each_other() -> None:
    files = {file.stem: json.loads(file.read_text()) for file in GOLDEN.glob("*.json")}
    assert files.keys() == KINDS.keys()
    for kind, saved in files.items():
        others = [other for other, now in files.items() if other != kind and not differences(saved, now)]
        assert others == [], kind


@pytest.mark.parametrize("kind", KINDS)
def test_each_plan_goes_on_with_its_own_file(kind: str) -> None:
    saved = {**json.loads((GOLDEN / f"{kind}.json").read_text()), "encoding": ENCODING}
    assert fitted(planned(kind), saved, 4).differences == ()


def test_a_plan_goes_on_with_state_that_lacks_a_table_which_may_be_new_but_no_part_of_it() -> None:
    saved = {**json.loads((GOLDEN / "interval join.json").read_text()), "encoding": ENCODING}
    (stage,) = saved["stages"].values()
    (table,) = stage.pop(NEW_TABLES)
    assert table == "left_matched"
    columns = [column for column in stage["state"] if column.startswith(f"{table}/")]
    del stage["state"][columns[0]]
    (difference,) = fitted(planned("interval join"), saved, 4).differences
    assert f"column {columns[0]} was missing" in difference.what
    for column in columns[1:]:
        del stage["state"][column]
    assert fitted(planned("interval join"), saved, 4).differences == ()
    stage["state"]["other/row"] = "Int64"
    (difference,) = fitted(planned("interval join"), saved, 4).differences
    assert "column other/row was Int64, now gone" in difference.what
