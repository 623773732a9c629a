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
    side_by_side,
    watermarks_table,
    write_report,
)
from examples import generate, oracle
from examples.session_lengths import pipeline

VARIANTS = {
    bl.END_OF_WINDOW: "a session's length has the time of the end of its window",
    bl.EARLIEST: "a session's length has the time of its first play",
}
_SECOND_STAGE = "average"
_POINTS = 4  # of processing time at which the watermarks are shown


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


def windows_table(outcome: Outcome) -> Table:
    """Every window of the second stage with the mean session length and the number of sessions."""
    table = Table("window", title="Average session length", title_justify="left")
    table.add_column("mean length", justify="right")
    table.add_column("sessions", justify="right")
    for start, mean, sessions in outcome.windows.select("window_start", "mean", "sessions").iter_rows():
        table.add_row(f"{start:%H:%M}", f"{mean:.1f} s", f"{sessions:,}")
    return table


def points(batches: Sequence[BatchRecord]) -> list[BatchRecord]:
    """A few batches spread evenly over the run, including the last one."""
    count = min(_POINTS, len(batches))
    return [batches[(i + 1) * len(batches) // count - 1] for i in range(count)]


def clock(us: int) -> str:
    """The time of day in UTC, in whole seconds; -inf and +inf unchanged."""
    day, _, time = format_time(us).partition("T")
    return time[:8] or day


def seconds(us: int) -> str:
    """A length of time to the nearest second."""
    return format_duration(round(us, -6))


def behind(batch: BatchRecord) -> int:
    """The microseconds by which the input watermark of the second stage is behind that of the slowest source."""
    slowest = min(source.watermark for source in batch.sources.values())
    return slowest - batch.stages[_SECOND_STAGE].input


def finding(end_of_window: Outcome, earliest: Outcome) -> str:
    """Describes the watermarks of both variants in the middle of their runs."""
    middle = _middle(end_of_window, earliest)
    told = [f"After batch {end_of_window.batches[middle].batch}:"]
    for outcome in (end_of_window, earliest):
        batch = outcome.batches[middle]
        told.append(
            f"With {outcome.combiner.name} the second stage has seen everything before "
            f"{clock(batch.stages[_SECOND_STAGE].input)}, {seconds(behind(batch))} behind the slower source, "
            f"and has emitted {_emitted(outcome.batches[: middle + 1])} windows."
        )
    delay = behind(earliest.batches[middle]) - behind(end_of_window.batches[middle])
    if delay > 0:
        told.append(
            f"EARLIEST delays the second stage by {seconds(delay)}: sessions that are still open hold the "
            "first stage's output watermark at their first play."
        )
    return " ".join(told)


def _middle(*outcomes: Outcome) -> int:
    return (min(len(outcome.batches) for outcome in outcomes) - 1) // 2


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
    Charts.of(earliest.history).graph(earliest.batches[_middle(*outcomes)]).save(work / "graph.svg")
    return [*reports, work / "watermarks.svg", work / "graph.svg"]


def show(console: Console, outcome: Outcome) -> None:
    """Prints one variant: its windows, its watermarks, and the comparison with the oracle."""
    console.rule(f"{outcome.combiner.name}: {VARIANTS[outcome.combiner]}")
    console.print(windows_table(outcome))
    console.print(watermarks_table(points(outcome.batches)))
    console.print(verdict(outcome), highlight=False)


@click.command(context_settings={"show_default": True})
@click.option("--events", default=1_000_000, type=click.IntRange(1), help="Plays to generate.")
@click.option("--files", default=10, type=click.IntRange(1), help="Files per source, each a micro-batch.")
@click.option("--seed", default=7, type=click.IntRange(0), help="Seed of the generated plays.")
@click.option("--runner", "on", default="spark", type=click.Choice(["spark", "local"]), help="Where to run.")
@click.option("--work", default=Path("build/demo"), type=click.Path(file_okay=False, path_type=Path))
def main(events: int, files: int, seed: int, on: str, work: Path) -> None:
    """Run the flagship example in both variants; exit code 1 if a result is not as expected."""
    console = Console()
    data = generate.write(work / "plays", generate.Plays(events, files, seed, ties=True))
    console.print(f"{events:,} plays, {files} files of each source, below {data}", highlight=False)
    end_of_window, earliest = outcomes = [run(combiner, data, work, on) for combiner in VARIANTS]
    for outcome in outcomes:
        show(console, outcome)
    console.rule("What one sees")
    console.print(finding(end_of_window, earliest), highlight=False)
    console.print(
        "To look at:",
        *write_pictures(end_of_window, earliest, work),
        sep="\n  ",
        highlight=False,
        soft_wrap=True,
    )
    sys.exit(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    main()
