"""The leaderboard of Beam's game examples, from the installed package."""

from __future__ import annotations

from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.examples.complete.game import leader_board  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.testing.test_stream import TestStream  # noqa: E402

from beamlike.beam import BeamlikeRunner  # noqa: E402
from tests.beamlike.beam.pipelines import see, seen  # noqa: E402

HOUR = 3_600


def plays(team: str, first: int, last: int) -> list[Any]:
    """Returns lines of the game: a play of one point in each of some minutes."""
    minutes = range(first, last)
    return [beam.window.TimestampedValue(f"user,{team},1,{n * 60_000},x", n * 60) for n in minutes]


class Shown(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Records each score, with the hour and the timing of its pane."""

    def process(
        self, element: Any, window: Any = beam.DoFn.WindowParam, pane: Any = beam.DoFn.PaneInfoParam
    ) -> None:
        hour = int(window.start) // HOUR if isinstance(window, beam.window.IntervalWindow) else None
        timing = beam.utils.windowed_value.PaneInfoTiming.to_string(pane.timing)
        see((*element, hour, timing))


def test_the_leaderboard_has_early_panes_and_the_score_at_the_end_of_each_hour() -> None:
    stream = TestStream().advance_watermark_to(0)
    stream = stream.add_elements(plays("red", 0, 10)).add_elements(plays("red", 10, 12))
    stream = stream.add_elements(plays("blue", 20, 25)).advance_watermark_to(HOUR)
    stream = stream.add_elements(plays("blue", 60, 63)).advance_watermark_to_infinity()
    options = PipelineOptions(["--streaming", "--allow_unsafe_triggers"])
    seen.clear()
    with beam.Pipeline(runner=BeamlikeRunner(), options=options) as p:
        events = p | stream | beam.ParDo(leader_board.ParseGameEventFn())
        teams = events | leader_board.CalculateTeamScores(team_window_duration=60, allowed_lateness=120)
        teams | "teams" >> beam.ParDo(Shown())
        users = events | leader_board.CalculateUserScores(allowed_lateness=120)
        users | "users" >> beam.ParDo(Shown())
    assert sorted(row for row in seen if row[0] != "user") == [
        ("blue", 3, 1, "ON_TIME"),
        ("blue", 5, 0, "ON_TIME"),
        ("red", 10, 0, "EARLY"),
        ("red", 12, 0, "ON_TIME"),
    ]
    assert [row for row in seen if row[0] == "user"] == [
        ("user", 10, None, "EARLY"),
        ("user", 20, None, "EARLY"),
    ]
