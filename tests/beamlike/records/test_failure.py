"""Tests of the record of the error that ended a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import beamlike as bl
from beamlike.observe import History
from beamlike.records.failure import Failure, traceback_text


class Wordless(Exception):
    step = 5

    def __str__(self) -> str:
        return self.missing  # type: ignore[attr-defined,no-any-return]


def raised(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as caught:
        return Failure.of(caught, None)


def test_an_error_whose_text_fails_is_recorded(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    read = p.read("r", bl.Rows([{"n": 1}]))
    read.write("o", bl.Memory())

    def fail(record: object) -> None:
        raise Wordless

    with pytest.raises(Wordless):
        p.run(bl.LocalRunner(records=tmp_path / "records.jsonl", on_batch=fail))
    failure = History.open(tmp_path / "records.jsonl").failure
    assert failure is not None
    assert (failure.error, failure.step) == ("Wordless", "")
    assert "has no text" in failure.text


def test_a_group_of_errors_names_the_step_of_one() -> None:
    inner = ValueError("bad")
    inner.add_note("in the function of step 'scores' (map)")
    assert raised(ExceptionGroup("several", [inner])).step == "scores"


def test_secrets_in_a_workers_traceback_are_hidden() -> None:
    told = (
        'Traceback (most recent call last):\n  File "/app/job.py", line 3, in f\n    connect("password=S3")\n'
        "ValueError: cannot connect to postgresql://ada:S3@db/x\n"
    )
    assert "S3" not in traceback_text(told)
