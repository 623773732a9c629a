"""The text of records: one short line, and a table in a notebook."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import beamlike as bl
from beamlike.observe import BatchRecord, History
from beamlike.records.model import SourceRecord, StageRecord

SECOND = 1_000_000


def record(*, evil: str = "plays") -> BatchRecord:
    stage = StageRecord(
        61 * SECOND,
        30 * SECOND,
        evil,
        elements=5,
        panes={"on_time": 1, "late": 1, "retracted": 1},
        dropped={"late": 2},
    )
    sources = {evil: SourceRecord(61 * SECOND, 1_200, 1)}
    return BatchRecord(3, 0, sources, {"n": stage}, sinks={"out": 3}, dead_letters={"parse": 2})


def test_records_are_a_line_each() -> None:
    shown = record()
    assert (
        repr(shown)
        == "<BatchRecord 3: 1,200 elements, 2 panes, 1 pane retracted, 2 dropped, 3 dead letters, "
        "3 rows written; complete to 1970-01-01T00:00:30Z>"
    )
    assert (
        repr(shown.sources["plays"])
        == "<SourceRecord: 1,200 elements, 1 dead letter; watermark 1970-01-01T00:01:01Z>"
    )
    assert (
        repr(shown.stages["n"]) == "<StageRecord: 5 elements, 2 panes, 1 pane retracted, 2 dropped; "
        "input 1970-01-01T00:01:01Z, output 1970-01-01T00:00:30Z, held by plays>"
    )
    assert repr(BatchRecord(0, 0, {}, {})) == "<BatchRecord 0: 0 elements; complete to +inf>"


def test_output_that_is_not_panes_is_counted_as_rows() -> None:
    stage = StageRecord(SECOND, SECOND, "plays", elements=1, panes={"rows": 1})
    assert ": 1 element, 1 row emitted; input " in repr(stage)


def test_a_notebook_shows_a_batch_as_tables_with_all_text_escaped() -> None:
    page = record(evil="<b>")._repr_html_()
    texts = list(ElementTree.fromstring(page).itertext())
    start = texts.index("<b>")
    assert texts[start : start + 4] == ["<b>", "1,200", "1", "00:01:01"]
    start = texts.index("n")
    counts, marks = ["5", "1 on time, 1 late, 1 retracted", "2 late"], ["00:01:01", "00:00:30", "<b>"]
    assert texts[start : start + 7] == ["n", *counts, *marks]
    assert texts[-2:] == ["out", "3"]


def test_times_of_several_days_have_their_date() -> None:
    days = {"a": SourceRecord(0), "b": SourceRecord(86_400 * SECOND)}
    assert "1970-01-02 00:00:00" in BatchRecord(0, 0, days, {})._repr_html_()


def test_a_history_is_a_line(tmp_path: Path) -> None:
    p = bl.Pipeline("plays")
    p.read("rows", bl.Rows([{"x": 1}])).write("out", bl.Memory())
    p.run(bl.LocalRunner(records=tmp_path / "plays.jsonl"))
    assert repr(History.open(tmp_path / "plays.jsonl")) == "<History of 'plays': 2 batches, ended>"
