"""Collections, pipelines and runs in a notebook: well-formed HTML in which all text of users is escaped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import beamlike as bl

EVIL = "<b>&'\""


def html(shown: Any) -> str:
    text: str = shown._repr_html_()
    return text


def texts(shown: Any) -> list[str]:
    """Returns the text of each cell, line and title."""
    return [text for text in ElementTree.fromstring(html(shown)).itertext() if text.strip()]


def declared(**options: Any) -> tuple[bl.Collection, bl.Collection]:
    given = [{EVIL: "a", "at": at} for at in (1, 70, 2)] + [{EVIL: "a", "at": None}]
    p = bl.Pipeline(f"p {EVIL}", **options)
    rows = p.read(f"plays {EVIL}", bl.Rows(given, rows_per_batch=1), timestamp="at", timestamp_unit="s",
                  watermark=bl.MonotonousTimestamps())  # fmt: skip
    windowed = rows.filter(bl.col(EVIL) == "<i>").window_into(bl.FixedWindows("60s"))
    windowed.group_by(EVIL).aggregate(n=bl.count())
    return rows, rows.window_into(bl.FixedWindows("60s")).group_by(EVIL, name=f"n {EVIL}").aggregate(
        n=bl.count()
    )


def test_a_collection_shows_columns_step_and_windowing() -> None:
    rows, counts = declared()
    title = f"Collection {f'n {EVIL}'!r} of pipeline {f'p {EVIL}'!r}"
    assert texts(counts)[:7] == [title, "column", "type", EVIL, "String", "n", "Int64"]
    assert f"group by {EVIL}: n = count()" in texts(counts)
    assert "FixedWindows(size=1m)" in texts(counts)
    for other in (rows, rows.filter(bl.col(EVIL) == "<i>"), rows.dead_letters(), counts.late(),
                  rows.window_into(allowed_lateness="1h"), bl.flatten(counts.drop("n"), counts.drop("n"))):  # fmt: skip
        assert "<b>" not in html(other)
        assert texts(other)[0].startswith("Collection ")


def test_a_pipeline_shows_its_graph_or_as_text_or_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, counts = declared()
    assert "writes to no sink" in html(counts.pipeline)
    counts.write(f"out {EVIL}", bl.Memory())
    picture = html(counts.pipeline)
    assert "<svg" in picture
    assert "<b>" not in picture
    for name in [
        name
        for name in sys.modules
        if name.startswith(("beamlike.observe.charts.plot", "beamlike.observe.charts.figure"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert texts(counts.pipeline)[1] == counts.pipeline.explain()


def test_a_run_shows_what_came_went_and_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, counts = declared(max_dead_letters=1)
    counts.write(f"out {EVIL}", bl.Memory())
    run = counts.pipeline.run()
    shown = texts(run)
    assert shown[0] == f"LocalRun of {f'p {EVIL}'!r}: 5 batches"
    at = shown.index(f"n {EVIL}")
    assert shown[at : at + 4] == [f"n {EVIL}", "3", "2 on time", "1 late"]
    assert shown[shown.index(f"out {EVIL}") + 1] == "2"
    assert [line for line in shown if "could not use" in line or " dropped, " in line] == shown[-2:]


def test_a_sink_in_memory_shows_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, _ = declared()
    rows.write("out", out := bl.Memory())
    assert "<td>" not in html(out)
    rows.pipeline.run()
    assert html(out).count("&quot;a&quot;") == 3
    assert "<b>" not in html(out)


def test_grouped_rows_are_a_line() -> None:
    rows, _ = declared()
    grouped = rows.window_into(bl.Sessions("1m")).group_by(EVIL)
    assert repr(grouped) == f"<Grouped {grouped.node.name!r} by {EVIL}, in Sessions(gap=1m)>"
