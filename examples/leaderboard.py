"""A leaderboard of teams that changes as scores arrive: every 30 s, on time, and once more for late scores.

    python -m examples.leaderboard [--runner local|spark]

Panes are retracting, so the sum of all rows, as the board and the second stage compute it, is always right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import attrs
import click
import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

import beamlike as bl
from beamlike.observe import BatchRecord, format_duration, format_time

Rows = dict[int, list[dict[str, Any]]]
"""Batch -> rows, in order."""

DAY = "2026-01-01"


def score(team: str, points: int, clock: str) -> dict[str, Any]:
    """Returns the points that a team made at this time of the day."""
    return {"team": team, "points": points, "at": f"{DAY}T{clock}Z"}


SCORES = (
    bl.TestStream({"team": str, "points": int, "at": str})
    .add_elements([score("red", 5, "12:00:10"), score("blue", 3, "12:00:20")])
    .advance_processing_time("31s")
    .add_elements([score("blue", 6, "12:00:50"), score("green", 4, "12:01:00")])
    .advance_processing_time("31s")
    .add_elements([score("red", 7, "12:01:40"), score("green", 2, "12:02:10")])
    .advance_watermark_to(f"{DAY}T12:02:00Z")
    .advance_processing_time("31s")
    .add_elements([score("blue", 8, "12:01:30")])  # late, but not too late
    .advance_watermark_to(f"{DAY}T12:05:00Z")
    .add_elements([score("red", 9, "12:00:40")])  # too late
    .advance_watermark_to_infinity()
)


def teams(scores: bl.Collection) -> bl.Collection:
    """Returns the score of each team in windows of two minutes; scores may be two minutes late."""
    windowed = scores.window_into(
        bl.FixedWindows("2m"),
        trigger=bl.AfterWatermark(early=bl.AfterProcessingTime("30s"), late=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
        allowed_lateness="2m",
    )
    return windowed.group_by("team", name="teams").aggregate(points=bl.sum("points"))


def together(of_teams: bl.Collection) -> bl.Collection:
    """Returns the score of all teams together, emitted with every pane of a team, in the windows of the teams."""
    at_once = of_teams.window_into(trigger=bl.Repeatedly(bl.AfterCount(1)))
    return at_once.aggregate(points=bl.sum("points"), teams=bl.count()).named("together")


@attrs.frozen
class Played:
    """The result of a run: the panes of teams and of all together, dropped scores, and the records."""

    teams: Rows = attrs.field(factory=dict)
    together: Rows = attrs.field(factory=dict)
    late: Rows = attrs.field(factory=dict)
    batches: list[BatchRecord] = attrs.field(factory=list)


def play(runner: Any = None) -> Played:
    """Runs the pipeline on a runner, in this process by default."""
    played, p = Played(), bl.Pipeline("leaderboard")
    of_teams = teams(p.read("scores", SCORES, timestamp="at"))
    of_teams.write("board", bl.Callback(partial(_keep, played.teams)))
    together(of_teams).write("totals", bl.Callback(partial(_keep, played.together)))
    of_teams.late().write("too late", bl.Callback(partial(_keep, played.late)))
    played.batches.extend(p.run(runner).batches)
    return played


def _keep(rows: Rows, frame: pl.DataFrame, batch: int) -> None:
    rows[batch] = frame.to_dicts()


@attrs.frozen
class Standing:
    """A window after a batch in which it had panes: the points of teams, and what the batch added to them."""

    batch: BatchRecord
    window: datetime
    timing: str
    points: Counter[str]
    added: Counter[str]
    together: int

    def ranked(self) -> list[str]:
        """Returns the teams with their points, best first, and the points that the batch added."""
        return [
            f"{team} {points}" + (f" [green]+{self.added[team]}[/green]" if self.added[team] else "")
            for team, points in self.points.most_common()
        ]


def standings(played: Played) -> list[Standing]:
    """Returns the board of each window after each change: the sum of all rows so far."""
    board: dict[datetime, Counter[str]] = defaultdict(Counter)
    found = []
    for batch in played.batches:
        together = {row["window_start"]: row["points"] for row in played.together.get(batch.batch, [])}
        for window, rows in sorted(by_window(played.teams.get(batch.batch, [])).items()):
            added: Counter[str] = Counter()
            for row in rows:
                added[row["team"]] += -row["points"] if row["pane_retracted"] else row["points"]
            board[window].update(added)
            timing = rows[-1]["pane_timing"]
            found.append(Standing(batch, window, timing, board[window].copy(), added, together[window]))
    return found


def by_window(rows: Iterable[dict[str, Any]]) -> dict[datetime, list[dict[str, Any]]]:
    """Returns rows by the start of their window."""
    found: dict[datetime, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["window_start"]].append(row)
    return found


def table(played: Played) -> Table:
    """Returns a row for each change: its time, its window, the timing of the panes, and the board."""
    columns = ("now", "watermark", "window", "panes", "1st", "2nd", "3rd")
    layout: dict[str, Any] = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
    made = Table(*columns, box=box.SIMPLE_HEAD, **layout)
    made.add_column("together", justify="right")
    for standing in standings(played):
        places = [*standing.ranked(), "", "", ""][:3]
        made.add_row(
            format_duration(standing.batch.processing_time),
            format_time(standing.batch.sources["scores"].watermark)[11:16],
            f"{standing.window:%H:%M}",
            standing.timing,
            *places,
            str(standing.together),
        )
    return made


def too_late(played: Played) -> list[str]:
    """Returns the scores that were dropped because their window was collected, in words."""
    rows = [row for batch in sorted(played.late) for row in played.late[batch]]
    return [
        f"{row['reason']}: {row['points']} for {row['team']} at {row['event_time']:%H:%M:%S}, window "
        f"{row['window_start']:%H:%M}"
        for row in rows
    ]


@click.command()
@click.option("--runner", "on", default="local", type=click.Choice(["local", "spark"]), show_default=True)
def main(on: str) -> None:
    """Run the pipeline and print the leaderboard as it changes."""
    played = play(bl.SparkRunner() if on == "spark" else bl.LocalRunner())
    console = Console()
    console.print(table(played), highlight=False)
    for line in too_late(played):
        console.print(f"\nDropped as {line}", highlight=False)


if __name__ == "__main__":
    main()
