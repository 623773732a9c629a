"""Errors before a run does any work: values that cannot be sent, mismatches, numbers that look like another unit."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import CheckpointError, DuplicateName, WrongType
from beamlike.plan.manifest import MANIFEST, WITH_FILES, describe, new_manifest
from beamlike.spark.query.modules import modules_of
from beamlike.system.seals import sealed


class Locked(bl.CombineFn):
    """An aggregate that has a lock, which cannot be pickled."""

    def __init__(self) -> None:
        self.guard = threading.Lock()

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def read(p: bl.Pipeline, times: list[Any], unit: Any = "s") -> bl.Collection:
    rows = bl.Rows([{"n": n, "at": at} for n, at in enumerate(times)])
    return p.read("rows", rows, timestamp="at", timestamp_unit=unit, watermark=bl.MonotonousTimestamps())


def with_closure(rows: bl.Collection) -> bl.Collection:
    lock, names = threading.Lock(), ["harmless"]
    return rows.map(lambda row: {"n": len(names) * row["n"] if lock else 0}, {"n": int}, name="guarded")


def with_nested(rows: bl.Collection) -> bl.Collection:
    locked = Locked()

    def add(row: dict[str, Any]) -> dict[str, Any]:
        return {"n": locked.add_input(0, row["n"])}

    return rows.map(add, {"n": int}, name="nested")


def with_combine(rows: bl.Collection) -> bl.Collection:
    windowed = rows.window_into(bl.FixedWindows("1m"))
    return windowed.aggregate(total=bl.combine(Locked(), "n", int)).named("totals")


def with_method(rows: bl.Collection) -> bl.Collection:
    lock = threading.Lock()

    class Mine(bl.Process):
        def element(self, row: dict[str, Any]) -> Any:
            with lock:
                yield row

    return rows.group_by("n").process(Mine(), {"n": int, "at": int}).named("process")


def with_attribute(rows: bl.Collection) -> bl.Collection:
    class Mine(bl.Process):
        guard = threading.Lock()

        def element(self, row: dict[str, Any]) -> None: ...

    return rows.group_by("n").process(Mine(), {"n": int}).named("process")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (with_method, r"step 'process': `lock`, of type lock, cannot be sent"),
        (with_attribute, r"step 'process': `guard`, of type lock, cannot be sent"),
        (
            with_closure,
            r"step 'guarded': `lock`, of type lock, cannot be sent to Spark's workers: cannot pickle",
        ),
        (with_nested, r"step 'nested': `locked.guard`, of type lock, cannot be sent"),
        (with_combine, r"step 'totals': `guard`, of type lock, cannot be sent"),
    ],
)
def test_what_workers_cannot_get_is_told_with_its_step_and_variable(
    declare: Callable[[bl.Collection], bl.Collection], message: str
) -> None:
    p = bl.Pipeline("p")
    declare(read(p, [1])).write("out", bl.Memory())
    with pytest.raises(WrongType, match=message):
        modules_of(p.plan())
    # As with any other master: before anything is started or looked for.
    with pytest.raises(WrongType, match=message):
        p.run(bl.SparkRunner(master="nowhere"))


def test_a_plan_that_does_not_fit_its_checkpoint_is_refused_before_spark_starts(tmp_path: Path) -> None:
    def counts(minutes: str) -> bl.Pipeline:
        p = bl.Pipeline("p")
        windowed = read(p, [1]).window_into(bl.FixedWindows(minutes))
        windowed.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
        return p

    (tmp_path / "beamlike").mkdir()
    manifest = {**new_manifest(describe(counts("1m").plan(), 3)), "store": "files", "version": WITH_FILES}
    (tmp_path / "beamlike" / MANIFEST).write_text(json.dumps(sealed(manifest, MANIFEST)))
    runner = bl.SparkRunner(checkpoint=str(tmp_path), master="nowhere")
    with pytest.raises(CheckpointError, match="counts"):
        counts("2m").run(runner)
    with pytest.raises(CheckpointError, match="shards"):
        counts("1m").run(bl.SparkRunner(checkpoint=str(tmp_path), shards=2, master="nowhere"))


@pytest.mark.parametrize(
    ("times", "unit", "told"),
    [
        ([1_767_268_800, 1_767_268_900], "ms", True),
        ([1_767_268_800, 1_767_268_900], "s", False),
        ([1_767_268_800_000], "ms", False),
        ([1_767_268_800_000], "us", True),
        ([1_767_268_800, 1_767_268_900], "ns", True),
        ([5], "s", False),
    ],
)
def test_event_times_in_january_1970_are_asked_about_once_where_a_coarser_unit_is_likely(
    times: list[int], unit: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    p = bl.Pipeline("p")
    read(p, times, unit).write("out", bl.Memory())
    with caplog.at_level(logging.WARNING, "beamlike"):
        p.run(bl.LocalRunner(chunk_rows=1))
    messages = [entry.getMessage() for entry in caplog.records]
    wanted = (
        f"source 'rows': its event times, column 'at' with timestamp_unit={unit!r}, are in January 1970; are"
    )
    assert [message[: len(wanted)] for message in messages] == [wanted] * told


def test_a_name_that_is_taken_says_by_what() -> None:
    p = bl.Pipeline("p")
    rows = read(p, [1])
    rows.filter(bl.col("n") > 0, name="some").write("out", bl.Memory())
    with pytest.raises(DuplicateName, match="step 'out': the name is taken in pipeline 'p', by a sink;"):
        rows.write("out", bl.Memory())
    for name, by in (("rows", "a source"), ("some", "a step")):
        with pytest.raises(
            DuplicateName, match=f"step '{name}': the name is taken in pipeline 'p', by {by};"
        ):
            rows.filter(bl.col("n") > 1, name=name)


def test_explain_lists_the_functions_of_a_module_in_which_none_says_that_it_makes_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "plain.py").write_text("def scores(): ...\ndef _own(): ...\nfrom os.path import join\n")
    result = CliRunner().invoke(main, ["explain", "plain:score"])
    assert result.exit_code == 2
    assert "plain has no pipeline 'score'; it has scores; did you mean 'scores'?" in " ".join(
        result.stderr.split()
    )
