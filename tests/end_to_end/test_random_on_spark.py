"""Random strategies over random streams: Spark emits the same as the local runner, step by step."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from beamlike.testing.play import PLAYBACK
from beamlike.testing.transcripts import Element, Step, Transcript
from tests.support.strategies import FIRST_WATERMARK, windowings
from windowing import CustomWindows, TimestampOf, Windowing
from windowing.time import microseconds

moves = st.one_of(
    st.lists(st.integers(-20, 40), min_size=1, max_size=4),
    st.tuples(st.just("watermark"), st.integers(1, 12)),
    st.tuples(st.just("processing_time"), st.integers(1, 12)),
)


def steps_of(drawn: list[Any]) -> tuple[Step, ...]:
    """Returns the steps: one bundle of elements, or one move of one clock, each."""
    steps, clocks = [], {"watermark": FIRST_WATERMARK, "processing_time": 0}
    for number, move in enumerate(drawn):
        if isinstance(move, list):
            steps.append(Step(str(number), tuple(Element("k", at, at) for at in move)))
        else:
            clock, by = move
            clocks[clock] += by
            steps.append(Step(str(number), **{clock: clocks[clock]}))
    return tuple(steps)


def can_be_played(windowing: Windowing) -> bool:
    """True if transcripts can express it: no marked elements, no percentiles, no user-defined windows."""
    clocks = windowing.trigger.clocks()
    percentile = any(clock.startswith("percentile") for clock in clocks)
    chosen = isinstance(windowing.timestamp_combiner, TimestampOf)
    return not (percentile or chosen or isinstance(windowing.windows, CustomWindows))


def transcript(windowing: Windowing, drawn: list[Any]) -> Transcript:
    choices = {field.name: getattr(windowing, field.name) for field in attrs.fields(Windowing)}
    choices["accumulation"] = windowing.accumulation.value
    return Transcript("random", "", microseconds("1s"), choices, "collect", steps_of(drawn), None, None, {})


cases = st.builds(transcript, windowings().filter(can_be_played), st.lists(moves, min_size=3, max_size=8))


def drawn() -> list[Transcript]:
    """Returns random transcripts, the same each time."""
    found: list[Transcript] = []

    @settings(max_examples=30, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(cases)
    def draw(case: Transcript) -> None:
        found.append(case)

    draw()
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_spark_does_as_the_local_runner() -> None:
    random = drawn()
    local = PLAYBACK.play(random, "local")
    assert not any(isinstance(played, Exception) for played in local)
    assert sum(any(outcome.panes for outcome in played) for played in local) > 10  # type: ignore[union-attr]
    assert PLAYBACK.play(random, "spark") == local
