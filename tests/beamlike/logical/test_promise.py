"""Declarations for which completeness and promises are impossible are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import CheckpointError

MINUTES = bl.FixedWindows("1m")


def read(p: bl.Pipeline | None = None, name: str = "rows") -> bl.Collection:
    rows = bl.Rows([{"k": "a", "at": 1}, {"k": "b", "at": 70}], rows_per_batch=1)
    strategy = bl.BoundedOutOfOrderness("5s")
    return (p or bl.Pipeline("p")).read(name, rows, timestamp="at", timestamp_unit="s", watermark=strategy)


def counts(p: bl.Pipeline | None = None) -> bl.Collection:
    return read(p).window_into(MINUTES).aggregate(n=bl.count()).named("counts")


@pytest.mark.parametrize("column", [bl.pane_cause, bl.pane_complete, bl.pane_watermark])
def test_rows_without_panes_have_no_such_columns(column: Any) -> None:
    with pytest.raises(
        bl.PlanError, match=rf"'rows.select': bl.{column.__name__}\(\): its rows are in no pane"
    ):
        read().select(column())


def test_after_a_lookup_in_a_side_they_are_gone() -> None:
    p = bl.Pipeline("p")
    side = read(p, "others").window_into(MINUTES).aggregate(most=bl.max("at"))
    looked_up = counts(p).with_columns(most=bl.as_singleton(side)["most"])
    with pytest.raises(bl.PlanError, match="a lookup in a side does not keep it"):
        looked_up.select(bl.pane_cause())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"complete": 99.9, "within": "2m"}, r"above 0 and at most 1, not 99\.9; did you mean 0\.999"),
        ({"complete": 0, "within": "2m"}, "above 0 and at most 1, not 0"),
        ({"complete": "all", "within": "2m"}, "complete is a share such as 0.999, not 'all'"),
        ({"complete": 0.9, "within": "soon"}, "within: "),
        ({"complete": 0.9, "within": "-1m"}, "within must not be negative"),
        ({"complete": 0.9, "within": "1m", "hold": 1}, "hold is True or False, not 1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(bl.PlanError, match=f"step 'counts': promise: .*{message}|{message}"):
        counts().promise(**arguments)


def test_only_a_grouping_can_promise() -> None:
    for rows in (read(), counts().select("n"), read().group_by("k").running(n=bl.count())):
        with pytest.raises(bl.PlanError, match=r"only the output of aggregate\(...\)"):
            rows.promise(complete=0.9, within="1m")
    everything = read().window_into(bl.GlobalWindows()).aggregate(n=bl.count())
    with pytest.raises(bl.PlanError, match="windows that end"):
        everything.promise(complete=0.9, within="1m")


def test_a_watermark_that_a_stage_sets_is_not_learned() -> None:
    again = counts().with_watermark(bl.MonotonousTimestamps())
    panes = again.window_into(bl.FixedWindows("1h")).aggregate(n=bl.count())
    panes.select(bl.pane_complete()).write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match="sets a watermark of its own"):
        panes.pipeline.plan()


def test_a_promise_is_that_of_the_grouping_whichever_collection_makes_it() -> None:
    p = bl.Pipeline("p")
    plain = counts(p)
    plain.write("before", bl.Memory())
    plain.promise(complete=0.9, within="1m")
    stage = p.plan().stages["counts"]
    assert stage.promise is not None
    assert (stage.promise.complete, stage.promise.within, stage.promise.hold) == (0.9, 60_000_000, False)
    assert stage.observes == {"rows": 0}
    plain.promise(complete=0.5, within="2m", hold=True)
    assert "promise     complete to 0.5 within 2m, held\n" in p.explain()
    changed = p.plan().stages["counts"].promise
    assert changed is not None
    assert changed.hold


def test_who_does_not_ask_pays_nothing() -> None:
    p = bl.Pipeline("p")
    counts(p).write("out", bl.Memory())
    plan = p.plan()
    assert plan.stages["counts"].observes == {}
    assert plan.sources["rows"].observers == ()
    done = p.run()
    assert all(batch.stages["counts"].shares == () for batch in done.batches)


def test_retracted_panes_are_in_the_state_so_other_columns_need_a_new_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*columns: Any) -> Any:
        p = bl.Pipeline("p")
        source = bl.JSONLines("in", schema={"at": int}, order="path")
        rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        often = bl.AfterWatermark(early=bl.AfterCount(1))
        windowed = rows.window_into(MINUTES, trigger=often, accumulation=bl.RETRACTING)
        windowed.aggregate(n=bl.count()).named("counts").select("n", *columns).write("out", bl.Memory())
        return p.run(bl.LocalRunner(checkpoint="checkpoint"))

    Path("in").mkdir()
    Path("in/1.jsonl").write_text('{"at": 1}\n')
    run()
    Path("in/2.jsonl").write_text('{"at": 2}\n')
    with pytest.raises(CheckpointError, match="__pane_cause"):
        run(bl.pane_cause())


def test_a_source_that_is_observed_later_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage behind another one has not seen the source's earlier rows, some of which were late."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()

    def run(*columns: Any) -> list[dict[str, Any]]:
        p = bl.Pipeline("p")
        source = bl.JSONLines("in", schema={"k": str, "at": int}, order="path", max_files_per_trigger=1)
        logs = bl.TimeOrderedLogs("k", ["a"])
        rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=logs)
        minutes = rows.window_into(MINUTES).aggregate(n=bl.count()).named("minutes")
        hours = minutes.window_into(bl.FixedWindows("1h")).aggregate(n=bl.sum("n")).named("hours")
        hours.select("n", *columns).write("out", bl.JSONLines("out"))
        p.run(bl.LocalRunner(checkpoint="checkpoint"))
        lines = [
            line for part in sorted(Path("out").glob("*.jsonl")) for line in part.read_text().splitlines()
        ]
        return [json.loads(line) for line in lines]

    for number, at in enumerate([10, 200, 20]):  # the last one is late, and dropped by the first stage
        Path(f"in/{number}.jsonl").write_text(json.dumps({"k": "a", "at": at}) + "\n")
    assert run() == []
    for number, at in enumerate([3599, 3700], start=3):
        Path(f"in/{number}.jsonl").write_text(json.dumps({"k": "a", "at": at}) + "\n")
    (hour,) = run(bl.pane_complete())
    assert hour["n"] == 3
    assert hour["pane_complete"] is None or hour["pane_complete"] < 1
