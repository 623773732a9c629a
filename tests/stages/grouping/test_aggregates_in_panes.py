"""Each aggregate of every pane equals plain Python over the pane's values."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

from hypothesis import given

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Count
from stages.aggregates.counted import ApproxQuantile, CollectSet, CountDistinct, Median, Mode
from stages.aggregates.distinct import ApproxCountDistinct
from stages.aggregates.flags import All
from stages.aggregates.flags import Any as Some
from stages.aggregates.ranked import ArgMax, Bottom, Sample, Top
from stages.aggregates.spread import Var
from stages.aggregates.totals import Sum
from tests.support.examples import share
from tests.support.model import chosen
from tests.support.runs import AGGREGATES, StageRun, advance
from tests.support.strategies import (
    Stream,
    bridged_streams,
    bridged_windowings,
    crowded_streams,
    crowded_windowings,
    streams,
    windowings,
)
from windowing import Windowing

some = share(4)

POSITIVE = ExpressionOfRows(bl.col("value") > 0)
MORE: dict[str, Aggregate] = {
    "positive": Count(where=POSITIVE),
    "gain": Sum("value", where=POSITIVE),
    "distinct": CountDistinct("value"),
    "about": ApproxCountDistinct("value"),
    "set": CollectSet("value"),
    "mode": Mode("value"),
    "median": Median("value"),
    "about median": ApproxQuantile("value", 0.5),
    "spread": Var("value"),
    "top": Top("value", 2),
    "lost": Bottom("value", 2, where=POSITIVE),
    "best": ArgMax("value", by="value"),
    "any": Some("chosen"),
    "all": All("chosen"),
    "some": Sample("value", 3),
}


def plain(values: list[int]) -> dict[str, Any]:
    """Returns the exact aggregates that depend only on the values."""
    positive, counts = [value for value in values if value > 0], Counter(values)
    return {
        "positive": len(positive),
        "gain": sum(positive),
        "distinct": len(counts),
        "about": len(counts),
        "set": sorted(counts),
        "mode": min(counts, key=lambda value: (-counts[value], value), default=None),
        "top": sorted(values, reverse=True)[:2],
        "lost": sorted(positive)[:2],
        "best": max(values, default=None),
        "any": any(map(chosen, values)),
        "all": all(map(chosen, values)),
    }


def assert_plain(windowing: Windowing, stream: Stream) -> None:
    stage = StageRun(windowing, {**AGGREGATES, **MORE})
    for bundle in stream:
        advance(stage, bundle)
        for pane in stage.frame.iter_rows(named=True):
            values = pane["values"]
            wanted = plain(values)
            assert {name: pane[name] for name in wanted} == wanted
            assert not Counter(pane["some"]) - Counter(values)
            assert len(pane["some"]) == min(3, len(values))
            spread = statistics.variance(values) if len(values) > 1 else None
            assert pane["spread"] == spread or math.isclose(pane["spread"], spread, rel_tol=1e-14)
            assert pane["median"] == (statistics.median(values) if values else None)
            middle = sorted(values)[(len(values) - 1) // 2] if values else None
            assert pane["about median"] == middle or math.isclose(
                pane["about median"], middle, rel_tol=0.0100001
            )


@some
@given(windowings(), streams())
def test_in_any_windows(windowing: Windowing, stream: Stream) -> None:
    assert_plain(windowing, stream)


@some
@given(crowded_windowings, crowded_streams())
def test_in_crowded_sessions(windowing: Windowing, stream: Stream) -> None:
    assert_plain(windowing, stream)


@some
@given(bridged_windowings, bridged_streams())
def test_in_bridged_windows(windowing: Windowing, stream: Stream) -> None:
    assert_plain(windowing, stream)
