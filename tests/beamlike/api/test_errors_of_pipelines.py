"""Names, sinks and runners that a pipeline refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import (
    DuplicateName,
)
from beamlike.spark.runner import SparkRunner
from tests.beamlike.api.test_errors import MINUTES, read
from tests.support.pipelines import SCHEMA, plays


def test_two_steps_of_one_name():
    p = bl.Pipeline("plays per user")
    source = plays(p)
    for again in (
        lambda: plays(p),
        lambda: source.filter("won", name="plays"),
        lambda: source.select("user").named("plays"),
        lambda: source.window_into(MINUTES).group_by("user", name="plays"),
        lambda: bl.flatten(source, source, name="plays"),
    ):
        with pytest.raises(
            DuplicateName, match="step 'plays': the name is taken in pipeline 'plays per user'"
        ):
            again()


@pytest.mark.parametrize("name", ["", " plays", "two\nlines", "@records", 3, None])
def test_names_are_one_line_of_text(name):
    with pytest.raises(bl.PlanError, match="name"):
        plays(bl.Pipeline(name) if name is None else None, name)


def test_a_pipeline_must_write_to_a_sink():
    p = bl.Pipeline("silent")
    plays(p)
    for call in (p.plan, p.explain, p.run):
        with pytest.raises(bl.PlanError, match="pipeline 'silent' writes to no sink"):
            call()


def test_a_trigger_makes_the_global_window_of_unbounded_input_groupable():
    live = plays(bounded=False).window_into(bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(5)))
    assert live.group_by("user").aggregate(n=bl.count()).schema == pl.Schema(
        {"user": pl.String(), "n": pl.Int64()}
    )
    assert plays().aggregate(n=bl.count()).schema == pl.Schema({"n": pl.Int64()})


def test_a_failing_source_says_its_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(bl.Parquet(tmp_path / "nothing"))


def test_the_stand_in_source_has_the_columns_of_the_schema():
    assert plays().schema == SCHEMA


@pytest.mark.parametrize("runner", ["spark", bl.LocalRunner])
def test_what_is_no_runner_is_refused(runner: object) -> None:
    with pytest.raises(TypeError, match=r"run takes a runner such as bl.LocalRunner\(\) .*, not "):
        bl.Pipeline("p").run(runner)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [lambda p: p, lambda p: p.plan()])
def test_runners_and_savepoints_take_a_pipeline_or_its_plan(
    given: Callable[[bl.Pipeline], Any], tmp_path: Path
) -> None:
    out = bl.Memory()
    pipeline = bl.Pipeline("p")
    (tmp_path / "in.jsonl").write_text('{"at": 1}\n')
    rows = bl.JSONLines(tmp_path / "in.jsonl", schema={"at": int})
    read = pipeline.read(
        "rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    read.write("out", out)
    bl.LocalRunner().run(given(pipeline))
    assert len(out.rows()) == 1
    bl.LocalRunner(checkpoint=str(tmp_path / "one")).start(given(pipeline)).stop()
    bl.savepoint.save(tmp_path / "one", tmp_path / "saved")
    bl.savepoint.restore(tmp_path / "saved", tmp_path / "two", given(pipeline), runner="local")
    bl.LocalRunner(checkpoint=str(tmp_path / "two")).run(given(pipeline))


@pytest.mark.parametrize(
    ("call", "taker"),
    [
        (lambda given: bl.LocalRunner().run(given), "LocalRunner.run"),
        (lambda given: bl.LocalRunner(checkpoint="c").start(given), "LocalRunner.start"),
        (lambda given: SparkRunner().run(given), "SparkRunner"),
        (lambda given: bl.savepoint.restore("s", "c", given), "restore"),
    ],
)
@pytest.mark.parametrize("given", [None, "p", bl.Memory()])
def test_what_has_no_plan_is_refused(call: Callable[[Any], Any], taker: str, given: Any) -> None:
    with pytest.raises(
        bl.errors.WrongType, match=re.escape(f"{taker} takes a pipeline or its plan, not {given!r}")
    ):
        call(given)
