"""The three accumulation modes side by side: the panes of each step for one input, and their sums.

    python -m examples.panes

The windows are two minutes long, as in *Streaming Systems*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import click
import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

import beamlike as bl
from beamlike.observe import format_time

Pane = dict[str, Any]
Panes = dict[int, list[Pane]]
"""Step -> its panes, in order."""

MODES = (bl.DISCARDING, bl.ACCUMULATING, bl.RETRACTING)
DAY = "2026-01-01"

FINDING = """\
The scores add up to 26. Discarding panes are parts: add them all. Accumulating
panes are wholes: only the last of each window counts. Retracting panes do both."""


def score(points: int, clock: str) -> dict[str, Any]:
    """Returns a score at this time of the day."""
    return {"score": points, "at": f"{DAY}T{clock}Z"}


SCORES = (
    bl.TestStream({"score": int, "at": str})
    .add_elements([score(5, "12:00:26")])
    .advance_watermark_to(f"{DAY}T12:02:00Z")
    .add_elements([score(3, "12:06:39")])
    .advance_processing_time("61s")
    .add_elements([score(8, "12:07:26")])
    .advance_watermark_to(f"{DAY}T12:08:00Z")
    .add_elements([score(9, "12:01:26")])  # late
    .add_elements([score(1, "12:07:46")])  # late, too
)


def totals(scores: bl.Collection, mode: bl.Accumulation) -> bl.Collection:
    """Returns the total of each window: early after a minute, on time at its end, and again for late scores."""
    windowed = scores.window_into(
        bl.FixedWindows("2m"),
        trigger=bl.AfterWatermark(early=bl.AfterProcessingTime("1m"), late=bl.AfterCount(1)),
        accumulation=mode,
        allowed_lateness="10m",
    )
    return windowed.aggregate(total=bl.sum("score"), scores=bl.collect("score"))


def play() -> dict[bl.Accumulation, Panes]:
    """Returns the panes of each mode, from one run of one pipeline."""
    p = bl.Pipeline("panes")
    scores = p.read("scores", SCORES, timestamp="at")
    played: dict[bl.Accumulation, Panes] = {mode: {} for mode in MODES}
    for mode, panes in played.items():
        totals(scores, mode).write(mode.value, bl.Callback(partial(_keep, panes)))
    p.run()
    return played


def _keep(panes: Panes, frame: pl.DataFrame, step: int) -> None:
    panes[step] = frame.with_columns(pl.col("scores").list.sort()).to_dicts()


def signed(pane: Pane) -> int:
    """Returns the number to add for a pane: a retracted pane is subtracted."""
    total: int = pane["total"]
    return -total if pane.get("pane_retracted") else total


def added(panes: Iterable[Pane]) -> str:
    """Returns the sums of the panes, for the lines below the table."""
    return f"{sum(map(signed, panes)):>13}"


def last_panes(panes: Iterable[Pane]) -> list[Pane]:
    """Returns the last pane of each window, as a sink that overwrites has it."""
    return list({pane["window_start"]: pane for pane in panes}.values())


def steps(stream: bl.TestStream) -> Iterator[str]:
    """Yields the events of each step, as text."""
    now = 0
    for step in stream.steps:
        if step.elements.height:
            yield ", ".join(f"{points} at {at[11:19]}" for points, at in step.elements.iter_rows())
        elif step.processing_time > now:
            yield f"{(step.processing_time - now) // 1_000_000} s pass"
        else:
            yield f"watermark {format_time(step.summary['watermark'])[11:16]}"
        now = step.processing_time


def shown(pane: Pane) -> str:
    """Formats timing, index and total of a pane, with its scores; a retracted pane is red, with a minus."""
    facts = f"{pane['pane_timing']:<7} {pane['pane_index']} {signed(pane):>3}"
    if pane.get("pane_retracted"):
        return f"[red]{facts}[/red]"
    scores = "+".join(map(str, pane["scores"]))
    return facts if len(pane["scores"]) == 1 else f"{facts}={scores}"


def table(played: Mapping[bl.Accumulation, Panes]) -> Table:
    """Returns a row for each step, and for each window that has panes in it; below, the sums of the panes."""
    modes = [mode.value for mode in played]
    layout: dict[str, Any] = {"padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
    made = Table("step", "window", *modes, box=box.SIMPLE_HEAD, **layout)
    for number, happened in enumerate(steps(SCORES)):
        now = [panes.get(number, []) for panes in played.values()]
        windows = sorted({pane["window_start"] for panes in now for pane in panes})
        for window in windows or [None]:
            cells = [[shown(pane) for pane in panes if pane["window_start"] == window] for panes in now]
            made.add_row(happened, f"{window:%H:%M}" if window else "", *map("\n".join, cells))
    made.add_section()
    everything = [[pane for step in panes.values() for pane in step] for panes in played.values()]
    made.add_row("sum of all", "", *map(added, everything))
    made.add_row("sum of last", "", *map(added, map(last_panes, everything)))
    return made


@click.command()
def main() -> None:
    """Play the scores in all three accumulation modes and print their panes side by side."""
    console = Console()
    console.print(table(play()), highlight=False)
    console.print(f"\n{FINDING}", highlight=False)


if __name__ == "__main__":
    main()
