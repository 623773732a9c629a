"""`show` and `plot`: the rows of a collection as a table and as a picture, from a part of its input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from examples import panes
from tests.support.browser import find_browser
from tests.support.notebooks import outputs

DAY = "2026-01-31"
PLAYS = [
    {"user": "ada", "points": 3, "at": f"{DAY}T12:00:10Z"},
    {"user": "bob", "points": 5, "at": f"{DAY}T12:00:40Z"},
    {"user": "ada", "points": 4, "at": f"{DAY}T12:01:20Z"},
]


def plays(rows: Any = PLAYS) -> bl.Collection:
    watermark = bl.MonotonousTimestamps()
    return bl.Pipeline("p").read("plays", bl.Rows(rows), timestamp="at", watermark=watermark)


def minutes(rows: Any = PLAYS, **aggregates: Any) -> bl.Collection:
    windowed = plays(rows).window_into(bl.FixedWindows("1m"))
    return windowed.group_by("user", name="minutes").aggregate(**(aggregates or {"points": bl.sum("points")}))


def totals(mode: bl.Accumulation) -> bl.Collection:
    scores = bl.Pipeline("panes").read("scores", panes.SCORES, timestamp="at")
    return panes.totals(scores, mode).named("totals")


def texts(collection: bl.Collection, value: str | None = None) -> list[str]:
    """Returns the texts of a picture, in the order in which they are drawn."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", collection.plot(value).svg())


def test_a_terminal_shows_panes_with_their_window(capsys: pytest.CaptureFixture[str]) -> None:
    minutes().show(2)
    lines = [
        re.split(r"\s*[┆│]\s*", line)[1:-1] for line in capsys.readouterr().out.splitlines() if "┆" in line
    ]
    assert lines == [
        ["window_start", "window_end", "user", "points", "pane_timing", "pane_index"],
        [f"{DAY} 12:00:00", f"{DAY} 12:01:00", "ada", "3", "on_time", "0"],
        [f"{DAY} 12:00:00", f"{DAY} 12:01:00", "bob", "5", "on_time", "0"],
    ]


def test_a_terminal_shows_rows_with_their_event_time(capsys: pytest.CaptureFixture[str]) -> None:
    plays().select("user").show(1)
    assert capsys.readouterr().out.splitlines()[3] == f"│ ada  ┆ {DAY} 12:00:10 │"


def test_a_notebook_shows_a_table_and_a_picture(tmp_path: Path) -> None:
    read = f"""
import beamlike as bl
rows = bl.Rows({PLAYS[:1]!r})
plays = bl.Pipeline("p").read("plays", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
"""
    _, table, picture = outputs(read, "plays.show()", "plays.plot()", folder=tmp_path)
    assert "<td>&quot;ada&quot;</td>" in table[0]["text/html"]
    assert picture[0]["image/svg+xml"].startswith("<svg")


def test_each_key_has_a_lane_and_values_are_the_first_numbers() -> None:
    drawn = texts(minutes())
    assert drawn.index("ada") < drawn.index("bob")
    assert {"minutes: points", "on-time panes", f"event time (UTC, {DAY})"} <= {*drawn}


def test_rows_without_keys_have_one_lane_and_rows_without_windows_are_points() -> None:
    assert "rows" in texts(plays())
    assert "plays.aggregate: n" in texts(plays().window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()))


def test_a_chosen_column_is_drawn_also_of_panes_that_no_grouping_is_the_last_step_of() -> None:
    kept = minutes(points=bl.sum("points"), plays=bl.count()).filter(bl.col("points") > 3).named("kept")
    drawn = texts(kept, "plays")
    assert "kept: plays" in drawn
    assert {"ada", "bob"} <= {*drawn}


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        (bl.ACCUMULATING, ["early panes", "on-time panes", "late panes"]),
        (bl.RETRACTING, ["early panes", "on-time panes", "late panes", "retracted panes"]),
    ],
)
def test_the_legend_has_the_timings_that_there_are(mode: bl.Accumulation, kinds: list[str]) -> None:
    assert [text for text in texts(totals(mode)) if text.endswith(" panes")] == kinds


def test_keys_and_rows_beyond_what_can_be_seen_are_counted() -> None:
    rows = [{"user": f"u{number:02}", "points": 1, "at": f"{DAY}T12:00:10Z"} for number in range(15)]
    drawn = texts(minutes(rows))
    assert "minutes: points; 3 more keys are not drawn" in drawn
    assert [text for text in drawn if text.startswith("u")] == [f"u{number:02}" for number in range(12)]
    many = [{"user": "ada", "points": 1, "at": f"{DAY}T12:00:10Z"}] * 3_001
    assert "plays: points; the first 3,000 of 3,001 rows" in texts(plays(many))


@pytest.mark.parametrize(
    "values",
    [[None, 1.0, float("inf")], [float("nan")] * 3, [-1.0, -2.0, 0.0], [1e300, 1.0, 2.0]],
)
def test_values_that_an_axis_cannot_have_are_left_out(values: list[float | None]) -> None:
    rows = [{"x": value, "at": f"{DAY}T12:00:10Z"} for value in values]
    with_type = bl.Rows(rows, schema={"x": float, "at": str})
    read = bl.Pipeline("p").read("plays", with_type, timestamp="at", watermark=bl.MonotonousTimestamps())
    assert "rows" in texts(read)


def test_rows_without_an_event_time_that_is_one_are_said_to_be_none() -> None:
    assert "no rows with an event time" in texts(plays().group_by("user").aggregate(n=bl.count()))


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(bl.PlanError, match="plot draws numbers, and 'user' is String"):
        plays().plot("user")
    with pytest.raises(bl.errors.UnknownColumn, match="did you mean 'points'"):
        plays().plot("point")
    with pytest.raises(bl.errors.WrongType, match="plot takes the name of a column, not 3"):
        plays().plot(3)  # type: ignore[arg-type]
    with pytest.raises(bl.PlanError, match="its rows have no event time yet"):
        bl.Pipeline("p").read("rows", bl.Rows(PLAYS)).plot()
    hidden = plays().with_columns(event_time=bl.lit(1))
    with pytest.raises(bl.PlanError, match="the column 'event_time' of these rows is not"):
        hidden.plot()


def test_no_text_overlaps_or_is_cut_off(tmp_path: Path) -> None:
    names = ["x" * 200, "<b>", "ada"]
    rows = [{"user": name, "points": 10**n, "at": f"{DAY}T12:00:10Z"} for n, name in enumerate(names)]
    pictures = [minutes(rows).plot(), totals(bl.RETRACTING).plot(), plays().plot()]
    page = tmp_path / "page.html"
    page.write_text(f"<body>{''.join(picture.svg(f'p{n}') for n, picture in enumerate(pictures))}</body>")
    assert find_browser(tmp_path).faults(page) == []
