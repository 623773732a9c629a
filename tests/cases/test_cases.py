"""Every case passes on every runner, and mistakes in cases are found and reported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from click.testing import CliRunner

from tests.cases.__main__ import main
from tests.cases.case import Case, load
from tests.cases.play import Result, play
from tests.support.places import ROOT

FILES = [
    ROOT / "tests" / "cases" / name
    for name in (
        "closure.yaml",
        "dedup.yaml",
        "examples.yaml",
        "joins.yaml",
        "time_joins.yaml",
        "process.yaml",
        "sides.yaml",
    )
]
ALL = [case for file in FILES for case in load(file)]

TEXT = """
cases:
- id: one of each
  kind: process
  timers: {t: event}
  state: {n: 0}
  element: "s.n += 1; emit(v / 2); set('t', 5)"
  fire: {t: "emit(s.n); s.n = 0"}
  steps:
  - {elements: [{at: 1, v: 1}, {at: 2, v: x}], out: ["0.5@1"], letters: [TypeError], live: 1}
  - {watermark: 4, out: [], output_watermark: 4}
  - {watermark: 5, out: ["1@5"], live: 0, late: []}
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to a folder for dead letters that no case reads."""
    monkeypatch.chdir(tmp_path)


def _report(runner: str, cases: Sequence[Case] = ALL) -> str:
    return "\n".join(str(result) for result in play(cases, runner) if result.status == "failed")


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_every_case_passes_on_the_stage(case: Case) -> None:
    (result,) = play([case])
    assert result.status != "failed", result.message


def test_cases_of_every_kind_pass_on_the_local_runner() -> None:
    some = [case for _, cases in groupby(ALL, lambda case: case.kind) for case in list(cases)[::9]]
    assert {case.kind for case in some} == {case.kind for case in ALL}
    assert _report("local", some) == ""


@pytest.mark.slow
def test_every_case_passes_on_the_local_runner() -> None:
    assert _report("local") == ""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_case_passes_on_spark() -> None:
    assert _report("spark") == ""


def _changed(folder: Path, before: str = "", after: str = "") -> Path:
    assert not before or TEXT.count(before) == 1
    path = folder / "cases.yaml"
    path.write_text(TEXT.replace(before, after) if before else TEXT)
    return path


def _told(folder: Path, before: str, after: str) -> str:
    (result,) = play(load(_changed(folder, before, after)))
    assert result.status == "failed"
    return result.message


def test_the_case_that_is_changed_below_passes(tmp_path: Path) -> None:
    assert play(load(_changed(tmp_path))) == [Result("one of each", "ok")]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"0.5@1"', '"0.6@1"', "step 1: out: expected ['0.6@1'], came ['0.5@1']"),
        ('"0.5@1"', '"0.5@2"', "step 1: out: expected ['0.5@2'], came ['0.5@1']"),
        ('out: ["1@5"], ', "", "step 3: out: expected [], came ['1@5']"),
        ("letters: [TypeError], ", "", 'step 1: letters: came ["TypeError: '),
        ("[TypeError]", "[ValueError]", "step 1: letters: expected ['ValueError'], came [\"TypeError: "),
        ("output_watermark: 4", "output_watermark: 3", "step 2: output watermark: expected 3, came 4"),
        ("live: 0", "live: 2", "step 3: live cells: expected 2, came 0"),
        ("late: []", "late: [3]", "step 3: late: expected ['3'], came []"),
    ],
)
def test_every_attribute_is_compared(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert _told(tmp_path, before, after).startswith(told)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("kind: process", "kind: magic", "cases of kind 'magic' are not played yet"),
        ("state: {n", "stat: {n", "a case of kind 'process' has no 'stat'"),
        ("live: 1", "lives: 1", "a step of kind 'process' has no 'lives'"),
        ("t: event", "t: lunar", "a timer is one of event, event drop, processing, processing hold, not 'lunar'"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_told(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert play(load(_changed(tmp_path, before, after))) == [Result("one of each", "unsupported", told)]


def test_a_case_that_cannot_be_read_fails_and_the_others_are_played(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(
        TEXT + "- {id: other, kind: process, ttl: {n: 10}, state: {n: 0}, steps: [{watermark: 1}]}"
    )
    results = play(load(path), "local")
    assert [result.status for result in results] == ["ok", "failed"]


def test_a_case_can_expect_an_error() -> None:
    steps: list[Any] = [{"elements": [{"at": 0}]}, {"watermark": "end"}]
    given = {"element": "after('t', 1)", "fire": {"t": "after('t', 1)"}, "timers": {"t": "event"}}
    case = Case("endless", "process", given, steps, error="10,000 times at the end")
    assert [str(result) for result in play([case])] == ["ok endless"]
    (result,) = play([attrs.evolve(case, error="something else")])
    assert str(result).startswith("failed endless: expected the error 'something else', came ")


def test_the_command_prints_a_line_for_each_and_fails_with_one(tmp_path: Path) -> None:
    path = _changed(tmp_path)
    done = CliRunner().invoke(main, [str(path), "--runner", "local"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "ok one of each")
    failed = CliRunner().invoke(main, [str(_changed(tmp_path, '"1@5"', '"2@5"'))])
    assert (failed.exit_code, failed.output.splitlines()[-1]) == (
        1,
        "failed one of each: step 3: out: expected ['2@5'], came ['1@5']",
    )


def test_names_are_told_apart(tmp_path: Path) -> None:
    names = [case.id for case in ALL]
    assert sorted(set(names)) == sorted(names)
    twice = yaml.safe_load(TEXT)["cases"] * 2
    (tmp_path / "twice.yaml").write_text(yaml.safe_dump({"cases": twice}))
    with pytest.raises(AssertionError, match="two cases have the id one of each"):
        load(tmp_path / "twice.yaml")
