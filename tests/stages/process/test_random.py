"""The process stage, compared with the naive model on random scripts and streams, and the laws that it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases.case import Outcome, us
from tests.cases.on_model import outcome
from tests.support.examples import share
from tests.support.model_process import Model
from tests.support.process_runs import Shards, play, unordered
from tests.support.process_script import Script
from tests.support.process_strategies import (
    AFTER_ONCE,
    AT_ONCE,
    FIRING_INTO_THE_PAST,
    INTO_THE_PAST,
    OF_FIRINGS,
    OF_ROWS,
    Bundle,
    crowds,
    punctual_streams,
    scripts,
    streams,
)
from windowing.time import MIN_TIME

law = share(3)
"""Fewer examples than where stage and model are compared: what holds for one then holds for the other."""

OF_ANY_ROW = [*OF_ROWS, *AT_ONCE, *INTO_THE_PAST]
OF_ANY_FIRING = [*OF_FIRINGS, *AFTER_ONCE, *FIRING_INTO_THE_PAST]
BY_TIME = st.just("time")


@given(scripts(OF_ANY_ROW, OF_ANY_FIRING), streams(), st.integers(1, 2))
def test_the_stage_gives_what_the_model_gives(script: Script, stream: list[Bundle], shards: int) -> None:
    model, run = Model(script), Shards(script, shards)
    for bundle in stream:
        expected = outcome(model.step(bundle.rows, bundle.watermark, bundle.processing_time))
        assert unordered(run.step(bundle)) == unordered(expected)


two_streams = crowds.flatmap(lambda rows: st.tuples(punctual_streams(rows), punctual_streams(rows)))


def _all(outcomes: Sequence[Outcome]) -> Any:
    out = Counter(row for one in outcomes for row in one.out)
    return out, Counter(error.partition(":")[0] for one in outcomes for error in one.letters)


@law
@given(scripts(OF_ROWS, OF_FIRINGS, BY_TIME), two_streams, st.integers(1, 3))
def test_in_order_of_time_neither_bundles_nor_shards_change_the_output(
    script: Script, two: tuple[list[Bundle], list[Bundle]], shards: int
) -> None:
    one, other = two
    assert _all(play(Shards(script), one)) == _all(play(Shards(script, shards), other))


@law
@given(
    scripts([*OF_ROWS, *AT_ONCE], [*OF_FIRINGS, *AFTER_ONCE]),
    crowds.flatmap(punctual_streams),
    st.integers(1, 2),
)
def test_the_output_watermark_stays_before_all_holds_and_nothing_on_time_becomes_late(
    script: Script, stream: list[Bundle], shards: int
) -> None:
    run, before = Shards(script, shards), MIN_TIME
    for bundle in stream:
        gave = run.step(bundle)
        assert all(time >= before for _, time in gave.out)
        assert before <= gave.output_watermark <= run.clock.watermark
        assert run.least_hold is None or gave.output_watermark <= run.least_hold
        before = gave.output_watermark


@law
@given(scripts(OF_ANY_ROW, OF_ANY_FIRING), streams())
def test_after_the_end_nothing_is_left(script: Script, stream: list[Bundle]) -> None:
    run = Shards(script)
    last = play(run, stream)[-1]
    assert (run.rows, last.live, last.output_watermark) == (0, 0, us("end"))
