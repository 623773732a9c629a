"""Runs test cases that are data, such as transcripts, on a runner, and reports a result for each.

Transcripts are such items, and so are the cases in this project's own tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import attrs
import click
import polars as pl

from beamlike.api.pipeline import Pipeline, Runner
from beamlike.io.base import Part
from beamlike.local.runner import LocalRunner
from beamlike.records.model import BatchRecord

ItemT = TypeVar("ItemT")

Outcomes: TypeAlias = Sequence[Any] | Exception
"""The outcome of each step of an item, or the error of its run."""


class InPipeline(Protocol):
    """An item that was declared in a pipeline."""

    def outcomes(self, records: Mapping[int, BatchRecord]) -> Sequence[Any]:
        """The outcome of each step, from the records of a run by batch."""


@attrs.frozen
class Result:
    """The result of an item on a runner; `message` has the difference, or the reason why it is unsupported."""

    name: str
    status: Literal["ok", "failed", "unsupported"]
    message: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.name}" + (f": {self.message}" if self.message else "")


@attrs.frozen
class Playback(Generic[ItemT]):
    """Plays items of a format.

    `declare` adds an item to a pipeline, under a name for its stage; `on_stage` plays it step by step on its stage.
    """

    declare: Callable[[Pipeline, ItemT, str], InPipeline]
    on_stage: Callable[[ItemT], Sequence[Any]]

    def play(self, items: Sequence[ItemT], runner: str) -> list[Outcomes]:
        """The outcomes of each item; `runner` is "stage", "local" or "spark"."""
        if runner == "stage":
            return [_caught(partial(self.on_stage, item)) for item in items]
        if not items:
            return []
        together = _caught(lambda: self.in_pipeline(items, _runner(runner)))
        if not isinstance(together, Exception):
            return list(together)
        if len(items) == 1:
            return [together]
        # One of several items failed the run: its half fails again, until it is alone.
        middle = len(items) // 2
        return self.play(items[:middle], runner) + self.play(items[middle:], runner)

    def in_pipeline(self, items: Sequence[ItemT], runner: Runner) -> list[Sequence[Any]]:
        """Plays all items in one run: each has sources, a stage and sinks of its own."""
        pipeline = Pipeline("behaviour")
        declared = [self.declare(pipeline, item, str(number)) for number, item in enumerate(items)]
        records = {record.batch: record for record in pipeline.run(runner).batches}
        return [one.outcomes(records) for one in declared]


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # the other items are played, whatever it is
        return error


def _runner(name: str) -> Runner:
    if name == "local":
        return LocalRunner()
    from beamlike.spark.runner import SparkRunner  # only needed here, and slow to import

    return SparkRunner(shards=1)


def error_line(error: Exception) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@attrs.define
class Recorder:
    """A sink that keeps the rows of each batch, for runs in this process."""

    frames: dict[int, list[pl.DataFrame]] = attrs.field(factory=dict)

    distributed: ClassVar[bool] = False

    def start(self, run: str) -> None:
        self.frames.clear()

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self.frames.setdefault(part.batch, []).append(frame)

    def rows(self, batches: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of these batches, in order."""
        return [
            row
            for batch in batches
            for frame in self.frames.get(batch, [])
            for row in frame.iter_rows(named=True)
        ]


def command(
    what: str,
    read: Callable[[str], Iterable[ItemT | Result]],
    play: Callable[[list[ItemT], str], list[Result]],
) -> click.Command:
    """The command that plays the items in files, prints a line for each, and exits with 1 if any failed.

    `read` returns the items of a file, or a result for what it cannot read.
    """

    @click.command(
        context_settings={"help_option_names": ["-h", "--help"]},
        help=f"Play the {what} in FILES on a runner.",
    )
    @click.argument("files", nargs=-1, required=True, type=click.Path())
    @click.option(
        "--runner", type=click.Choice(["stage", "local", "spark"]), default="stage", show_default=True
    )
    def main(files: tuple[str, ...], runner: str) -> None:
        items = [item for file in files for item in read(file)]
        played = iter(play([item for item in items if not isinstance(item, Result)], runner))
        results = [item if isinstance(item, Result) else next(played) for item in items]
        for result in results:
            click.echo(str(result))
        sys.exit(any(result.status == "failed" for result in results))

    return main
