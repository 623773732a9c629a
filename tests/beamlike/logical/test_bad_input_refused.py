"""Invalid options for bad input: each is refused where it is declared, with a hint."""

from __future__ import annotations

from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import WrongType
from tests.support.pipelines import Declared, plays

MINUTES = bl.FixedWindows("1m")


def read(**options: Any) -> bl.Collection:
    return bl.Pipeline("p").read(
        "plays", Declared(), timestamp="at", watermark=bl.MonotonousTimestamps(), **options
    )


CASES: dict[str, tuple[Any, type[Exception], str]] = {
    "dead letters of windows": (
        lambda: plays().window_into(MINUTES).dead_letters(),
        bl.PlanError,
        "step 'plays.dead_letters': only a source and a step that computes something of each row have dead letters, "
        "such as map or filter, a grouping with a CombineFn, or windows of your own; 'plays.window_into' is neither",
    ),
    "dead letters of a grouping": (
        lambda: plays().window_into(MINUTES).aggregate(n=bl.count()).dead_letters(),
        bl.PlanError,
        "'plays.aggregate' is neither",
    ),
    "dead letters of dead letters": (
        lambda: plays().dead_letters().select("row").dead_letters(),
        bl.PlanError,
        "step 'plays.dead_letters_2': its rows are dead letters, and have none of their own",
    ),
    "max_future: no duration": (
        lambda: read(max_future="soon"),
        bl.PlanError,
        "step 'plays': max_future: not a duration: 'soon'; write for example '90s'",
    ),
    "max_future: negative": (
        lambda: read(max_future="-1h"),
        bl.PlanError,
        "step 'plays': max_future must not be negative, not '-1h'",
    ),
    "max_future: a type": (
        lambda: read(max_future=True),
        WrongType,
        "step 'plays': max_future: expected a duration",
    ),
    "on_error: no choice": (
        lambda: bl.Pipeline("p", on_error="dead_leters"),
        KeyError,
        "pipeline 'p': on_error must be 'dead_letters' or 'fail', not 'dead_leters'; did you mean 'dead_letters'?",
    ),
    "max_dead_letters: negative": (
        lambda: bl.Pipeline("p", max_dead_letters=-1),
        bl.PlanError,
        "pipeline 'p': max_dead_letters=-1 is neither a count of at least 0 nor a share from 0 to below 1",
    ),
    "max_dead_letters: a float that is no share": (
        lambda: bl.Pipeline("p", max_dead_letters=5.0),
        bl.PlanError,
        "nor a share from 0 to below 1; did you mean 5?",
    ),
    "max_dead_letters: a type": (
        lambda: bl.Pipeline("p", max_dead_letters="1%"),
        WrongType,
        "pipeline 'p': max_dead_letters must be a count such as 1000, or a share of the rows such as 0.01, not '1%'",
    ),
    "max_dead_letters: where none is allowed": (
        lambda: bl.Pipeline("p", on_error="fail", max_dead_letters=10),
        bl.PlanError,
        "with on_error='fail' the first dead letter fails the run; leave out max_dead_letters=10",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_is_refused_with_the_reason(case: str) -> None:
    call, kind, text = CASES[case]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, bl.PlanError)
    assert text in str(caught.value)
