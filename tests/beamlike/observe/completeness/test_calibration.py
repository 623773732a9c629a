"""Stated completeness, compared with the truth, and promises in status, metrics, alerts, why and report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.cli.main import main
from beamlike.observe.completeness.promises import promise_lines
from beamlike.observe.status import Status
from beamlike.records.shares import MOST_WINDOWS, WindowShare, merged_shares
from tests.support.examples import share

SECOND = 1_000_000


def play(batches: list[list[int]], *, hold: bool = False, window: str = "10s") -> bl.Pipeline:
    """Runs counts of ten seconds with records, promised to be half complete after five seconds."""
    p, stream = bl.Pipeline("plays"), bl.TestStream({"at": int})
    for batch in batches:
        stream = stream.add_elements([{"at": at} for at in batch])
    plays = p.read(
        "plays", stream, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("2s")
    )
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    counts = plays.window_into(bl.FixedWindows(window), trigger=early).aggregate(n=bl.count())
    counts.named("counts").promise(complete=0.5, within="5s", hold=hold).write("out", bl.Memory())
    p.run(bl.LocalRunner(records="run.jsonl"))
    return p


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


ROWS = [[0, 4], [9, 12], [11, 6], [22, 25], [40]]


@share(4)
@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_share_that_had_arrived_is_counted_from_the_rows(batches: list[list[int]]) -> None:
    play(batches)
    found = bl.observe.completeness("run.jsonl")
    assert found.windows
    for one in found.windows:
        start = one.start // SECOND
        inside = [[at for at in batch if start <= at < start + 10] for batch in batches]
        arrived = sum(map(len, inside[: one.batch + 1]))
        assert one.really == arrived / sum(map(len, inside))
    assert len(found.frame()) == len(found.windows)


def test_a_share_is_not_known_as_long_as_rows_may_arrive() -> None:
    play(ROWS)
    history = bl.observe.History.open("run.jsonl")
    del history.batches[-1]  # the end of the input
    known = {one.end // SECOND: one.really is not None for one in bl.observe.completeness(history).windows}
    # The greatest lateness is 6 s, and the newest event time 40 s.
    assert known == {10: True, 20: True, 30: True, 50: False}
    del history.batches[-1]
    known = {one.end // SECOND: one.really is not None for one in bl.observe.completeness(history).windows}
    assert known == {10: True, 20: False, 30: False}


def test_the_report_and_the_text_say_what_was_stated_and_promised() -> None:
    play(ROWS)
    text = str(bl.observe.completeness("run.jsonl"))
    first, stage, heads, *lines = text.splitlines()
    assert first.startswith("stage counts: promise of 0.5 within 5s: missed by ")
    assert (stage, heads.split()) == ("stage counts:", ["stated", "windows", "mean", "really", "least"])
    assert any(line.split()[0] == "0" for line in lines)
    assert "stated no share" in lines[-1]
    bl.observe.write_report(bl.observe.History.open("run.jsonl"), "report.html")
    page = Path("report.html").read_text()
    assert "<h2>Completeness</h2>" in page
    assert "share that had really arrived" in page
    assert "missed by" in page


def test_a_run_that_states_nothing_says_how_to_ask() -> None:
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows([{"a": 1}]), watermark=bl.IngressTimestamps()).write("out", bl.Memory())
    p.run(bl.LocalRunner(records="run.jsonl"))
    with pytest.raises(ValueError, match=r"use bl\.pane_complete"):
        bl.observe.completeness("run.jsonl")
    assert list(promise_lines(bl.observe.History.open("run.jsonl"))) == []


def test_status_says_how_many_panes_missed_a_promise() -> None:
    play(ROWS)
    line = [*Status.of(bl.observe.History.open("run.jsonl")).lines()][-1]
    assert (
        line
        == "stage counts: promise of 0.5 within 5s: missed by 2 of 4 on-time panes (1 delayed, 1 incomplete)"
    )
    assert line in CliRunner().invoke(main, ["status", "run.jsonl"]).output


def test_why_says_what_a_window_stated_and_that_a_promise_is_waited_for() -> None:
    play(ROWS, hold=True)
    history = bl.observe.History.open("run.jsonl")
    stated = bl.observe.why(history, stage="counts", window="1970-01-01T00:00:05Z")
    assert any("of its rows were expected to have arrived" in text for text in stated)
    del history.batches[1:]  # nothing is learned from the first batch
    waits = [text for text in bl.observe.why(history) if "as promised" in text]
    assert waits == [
        "stage `counts` holds its input watermark back until 0.5 of the rows have arrived, as promised, for at most 5s "
        "after the end of a window; its inputs are at 1970-01-01T00:00:02Z"
    ]


def test_misses_are_counters_from_the_first_batch_on() -> None:
    client = pytest.importorskip("prometheus_client")
    metrics = bl.observe.PrometheusMetrics("plays", client.CollectorRegistry())
    play(ROWS)
    seen: list[dict[str, float | None]] = []
    for batch in bl.observe.History.open("run.jsonl").batches:
        metrics(batch)
        labels = {"pipeline": "plays", "stage": "counts"}
        name = "beamlike_stage_promised_panes_total"
        seen.append(
            {
                outcome: metrics.registry.get_sample_value(name, {**labels, "outcome": outcome})
                for outcome in ("kept", "incomplete", "delayed")
            }
        )
    assert seen[0] == {"kept": 0, "incomplete": 0, "delayed": 0}
    assert seen[-1] == {"kept": 2, "incomplete": 1, "delayed": 1}


def test_alerts_are_rules_of_prometheus() -> None:
    p = play(ROWS)
    bl.observe.write_alerts(p, "rules/promises.yaml")
    (group,) = yaml.safe_load(Path("rules/promises.yaml").read_text())["groups"]
    (rule,) = group["rules"]
    assert rule["alert"] == "PromiseMissed"
    assert rule["expr"] == (
        'sum by (pipeline, stage) (increase(beamlike_stage_promised_panes_total{pipeline="plays", stage="counts", '
        'outcome!="kept"}[1h])) > 0'
    )
    assert "0.5 within 5s" in rule["annotations"]["summary"]


def test_the_command_writes_or_prints_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("promising.py").write_text(
        "import beamlike as bl\n"
        "p = bl.Pipeline('plays')\n"
        "rows = p.read('rows', bl.Rows([{'a': 1}]), watermark=bl.IngressTimestamps())\n"
        "n = rows.window_into(bl.FixedWindows('1m')).aggregate(n=bl.count())\n"
        "n.promise(complete=1, within='0s').write('out', bl.Memory())\n"
    )
    monkeypatch.syspath_prepend(".")
    printed = CliRunner().invoke(main, ["alerts", "promising:p"])
    assert printed.output.startswith("# Rules for Prometheus")
    assert CliRunner().invoke(main, ["alerts", "promising:p", "-o", "rules.yaml"]).output == "rules.yaml\n"
    assert Path("rules.yaml").read_text() == printed.output


def test_a_pipeline_without_a_promise_has_no_rules() -> None:
    p = bl.Pipeline("plain")
    p.read("rows", bl.Rows([{"a": 1}]), watermark=bl.IngressTimestamps()).write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match="'plain' makes no promise"):
        bl.observe.alert_rules(p)


def test_of_many_windows_those_with_the_most_panes_are_recorded() -> None:
    many = [WindowShare(start, start + 1, "on_time", 0.5, 1 + start % 7) for start in range(100)]
    kept = merged_shares(many[:50], many[50:], many[:1])
    assert len(kept) == MOST_WINDOWS
    assert min(one.panes for one in kept) >= 6
    assert merged_shares(many[50:], many[:1], many[:50]) == kept


def test_tune_says_that_it_predicts_without_the_promise() -> None:
    play(ROWS, hold=True)
    assert any("waits for its promise" in text for text in bl.observe.tune("run.jsonl").sources[0].notes)


def test_a_dashboard_of_one_run_is_the_same_each_time() -> None:
    pytest.importorskip("matplotlib")
    play(ROWS)
    pictures: list[Any] = [bl.observe.completeness("run.jsonl").plot().svg() for _ in range(2)]
    assert pictures[0] == pictures[1]
