"""The demo that `make demo` runs: both variants of the flagship example, their watermarks, reports, and a check."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
import polars as pl
from rich.console import Console
from rich.table import Table

import beamlike as bl
from beamlike.observe import (
    BatchRecord,
    Charts,
    History,
    format_duration,
    format_time,
    serving,
    side_by_side,
    why,
    write_report,
)
from examples import generate, oracle
from examples.session_lengths import pipeline

VARIANTS = {
    bl.END_OF_WINDOW: "a session's length has the time of the end of its window",
    bl.EARLIEST: "a session's length has the time of its first play",
}
_SECOND_STAGE = "average"
_FEW = 4  # windows at the beginning and at the end of the table
_PLACES = {"spark": "on Spark", "local": "in this process"}


@attrs.frozen
class Outcome:
    """A variant after its run: its records, the windows written, and the lines in which they are wrong."""

    combiner: bl.TimestampCombiner
    history: History
    windows: pl.DataFrame
    wrong: Sequence[str]

    @property
    def batches(self) -> Sequence[BatchRecord]:
        """The records of the batches."""
        return self.history.batches


def run(combiner: bl.TimestampCombiner, data: Path, work: Path, on: str) -> Outcome:
    """Runs one variant from the beginning and compares its output with the oracle."""
    folder = work / combiner.value
    shutil.rmtree(folder, ignore_errors=True)
    pipeline(data, folder / "averages", combiner).run(runner=_runner(on, folder))
    windows = oracle.written(folder / "averages").sort("window_start")
    wrong = oracle.differences(windows, oracle.averages(oracle.read(data), combiner.value))
    return Outcome(combiner, History.open(folder), windows, wrong)


def _runner(on: str, folder: Path) -> bl.SparkRunner | bl.LocalRunner:
    if on == "local":
        return bl.LocalRunner(records=folder / "records.jsonl")
    return bl.SparkRunner(checkpoint=str(folder / "checkpoint"), trigger="available_now", drain=True)


def middle(*outcomes: Outcome) -> int:
    """Returns the number of a batch in the middle of all these runs."""
    return (min(len(outcome.batches) for outcome in outcomes) - 1) // 2


def clock(us: int) -> str:
    """Returns the time of day in UTC, in whole seconds; -inf and +inf unchanged."""
    day, _, time = format_time(us).partition("T")
    return time[:8] or day


def seconds(us: int) -> str:
    """Returns a length of time to the nearest second."""
    return format_duration(round(us, -6))


def behind(batch: BatchRecord) -> int:
    """Returns the microseconds by which the second stage's input watermark is behind that of the slowest source."""
    slowest = min(source.watermark for source in batch.sources.values())
    return slowest - batch.stages[_SECOND_STAGE].input


def finding(end_of_window: Outcome, earliest: Outcome) -> str:
    """Describes the watermarks of both variants in the middle of their runs."""
    number = middle(end_of_window, earliest)
    told = [f"After batch {end_of_window.batches[number].batch}:"]
    for outcome in (end_of_window, earliest):
        batch = outcome.batches[number]
        told.append(
            f"With {outcome.combiner.name} the second stage has seen everything before "
            f"{clock(batch.stages[_SECOND_STAGE].input)}, {seconds(behind(batch))} behind the slower source, "
            f"and has emitted {_emitted(outcome.batches[: number + 1])} windows."
        )
    delay = behind(earliest.batches[number]) - behind(end_of_window.batches[number])
    if delay > 0:
        told.append(
            f"EARLIEST delays the second stage by {seconds(delay)}: sessions that are still open hold the "
            "first stage's output watermark at their first play."
        )
    return " ".join(told)


def _emitted(batches: Sequence[BatchRecord]) -> int:
    return sum(sum(batch.stages[_SECOND_STAGE].panes.values()) for batch in batches)


def verdict(outcome: Outcome) -> str:
    """Compares the windows with those of the oracle, and lists wrong ones."""
    if not outcome.wrong:
        return f"[green]OK[/green] all {outcome.windows.height} windows equal the plain polars computation"
    lines = "".join(f"\n  {line}" for line in outcome.wrong)
    return f"[red]WRONG[/red] {len(outcome.wrong)} windows differ from the plain polars computation:{lines}"


def write_pictures(end_of_window: Outcome, earliest: Outcome, work: Path) -> list[Path]:
    """Writes a report of each variant, the second stage of both, and the graph in the middle of EARLIEST."""
    outcomes = (end_of_window, earliest)
    reports = [work / outcome.combiner.value / "report.html" for outcome in outcomes]
    for outcome, report in zip(outcomes, reports, strict=True):
        write_report(outcome.history, report)
    histories = {outcome.combiner.name: outcome.history for outcome in outcomes}
    side_by_side(histories, _SECOND_STAGE).save(work / "watermarks.svg")
    Charts.of(earliest.history).graph(earliest.batches[middle(*outcomes)]).save(work / "graph.svg")
    return [*reports, work / "watermarks.svg", work / "graph.svg"]


def watermarks(outcomes: Sequence[Outcome], number: int) -> Table:
    """Returns the watermarks of all variants after a batch."""
    table = Table("source or stage", title=f"Watermarks after batch {number}", title_justify="left")
    for outcome in outcomes:
        for what in ("input", "output"):
            table.add_column(f"{outcome.combiner.name}\n{what}", justify="right", no_wrap=True)
    batches = [outcome.batches[number] for outcome in outcomes]
    for name in batches[0].sources:
        table.add_row(
            name, *(text for batch in batches for text in ("", clock(batch.sources[name].watermark)))
        )
    for name in batches[0].stages:
        stages = [batch.stages[name] for batch in batches]
        table.add_row(name, *(clock(time) for stage in stages for time in (stage.input, stage.output)))
    return table


def waiting(outcome: Outcome, number: int) -> list[str]:
    """Returns the reasons for which the second stage had not emitted its next window after a batch.

    The list is empty if the stage has no such window yet.
    """
    record = outcome.batches[number]
    cut = attrs.evolve(outcome.history, batches=list(outcome.batches[: number + 1]), closed=None)
    window = format_time(record.stages[_SECOND_STAGE].input)
    try:
        return why(cut, stage=_SECOND_STAGE, window=window, now=record.processing_time)[1:]
    except bl.errors.ViewError:
        return []


def windows_table(outcomes: Sequence[Outcome]) -> Table:
    """Returns the first and last windows of all variants, with the mean session length and number of sessions."""
    table = Table("window", title="Average session length", title_justify="left")
    for outcome in outcomes:
        for what in ("mean", "sessions"):
            table.add_column(f"{outcome.combiner.name}\n{what}", justify="right")
    columns = [
        {f"{start:%H:%M}": (f"{mean:.1f} s", f"{count:,}") for start, mean, count in windows.iter_rows()}
        for windows in (one.windows.select("window_start", "mean", "sessions") for one in outcomes)
    ]
    starts = sorted({start for column in columns for start in column})
    few = starts if len(starts) <= 2 * _FEW else [*starts[:_FEW], "...", *starts[-_FEW:]]
    for start in few:
        table.add_row(start, *(cell for column in columns for cell in column.get(start, ("", ""))))
    return table


def open_with(console: Console, events: int, files: int, on: str, address: str) -> None:
    """Prints what is about to run, and where to see it while it runs."""
    console.print(
        f"{events:,} plays of a game, on mobile phones and consoles, become sessions, and these the mean session "
        f"length of every two minutes: in {files} batches, {_PLACES[on]}. The pipeline runs twice:",
        highlight=False,
    )
    for combiner, meaning in VARIANTS.items():
        console.print(f"  {combiner.name}: {meaning}", highlight=False)
    console.print(f"[bold]See it while it runs: {address}[/bold]", soft_wrap=True)


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Prints the results of the runs: the watermarks in the middle, the reason why a window waited, and the windows."""
    end_of_window, earliest = outcomes
    number = middle(*outcomes)
    console.rule("What one sees")
    console.print(finding(end_of_window, earliest), highlight=False)
    console.print(watermarks(outcomes, number))
    if sentences := waiting(earliest, number):
        console.print(
            f"[bold]Why did EARLIEST have no result for the next window after batch {number}?[/bold]"
        )
        for sentence in sentences:
            console.print(f"- {sentence}", markup=False, highlight=False)
    console.print(windows_table(outcomes))


@click.command(context_settings={"show_default": True})
@click.option("--events", default=1_000_000, type=click.IntRange(1), help="Plays to generate.")
@click.option("--files", default=10, type=click.IntRange(1), help="Files per source, each a micro-batch.")
@click.option("--seed", default=7, type=click.IntRange(0), help="Seed of the generated plays.")
@click.option("--runner", "on", default="spark", type=click.Choice(["spark", "local"]), help="Where to run.")
@click.option("--work", default=Path("build/demo"), type=click.Path(file_okay=False, path_type=Path))
def main(events: int, files: int, seed: int, on: str, work: Path) -> None:
    """Run the flagship example in both variants; exit code 1 if a result is not as expected."""
    console = Console()
    outcomes = []
    work.mkdir(parents=True, exist_ok=True)
    with serving(work) as address:
        open_with(console, events, files, on, address)
        data = generate.write(work / "plays", generate.Plays(events, files, seed, ties=True))
        for combiner in VARIANTS:
            outcomes.append(run(combiner, data, work, on))
            console.print(f"{combiner.name}: {verdict(outcomes[-1])}", highlight=False)
    show(console, outcomes)
    end_of_window, earliest = outcomes
    paths = write_pictures(end_of_window, earliest, work)
    console.print(f"The page of the runs is served again by: .venv/bin/beamlike ui {work}", soft_wrap=True)
    console.print("To look at:", *paths, sep="\n  ", highlight=False, soft_wrap=True)
    sys.exit(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    main()
