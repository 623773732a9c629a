"""Runs test cases that are written as data on a runner, and reports a result for each.

An "item" is such a test case: a transcript, or one of the cases in this project's own tests.
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
from beamlike.runtime.display.summary import Run

ItemT = TypeVar("ItemT")

Outcomes: TypeAlias = Sequence[Any] | Exception
"""The outcome of each step of an item, or the error of its run."""


class InPipeline(Protocol):
    """An item that was added to a pipeline."""

    def outcomes(self, records: Mapping[int, BatchRecord]) -> Sequence[Any]:
        """Returns the outcome of each step, given the record of each batch of a run."""


@attrs.frozen
class Result:
    """The result of running an item. `message` describes the difference, or why the runner does not support
    the item.
    """

    name: str
    status: Literal["ok", "failed", "unsupported"]
    message: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.name}" + (f": {self.message}" if self.message else "")


@attrs.frozen
class Playback(Generic[ItemT]):
    """The execution of test cases (items) of one format.

    `declare` adds an item to a pipeline under a name, which is also that of its stage. `on_stage` runs an item step by
    step on its stage alone, without a runner.
    """

    declare: Callable[[Pipeline, ItemT, str], InPipeline]
    on_stage: Callable[[ItemT], Sequence[Any]]

    def play(self, items: Sequence[ItemT], runner: str) -> list[Outcomes]:
        """Runs items, and returns the outcomes of each. `runner` is "stage", "local" or "spark"."""
        if runner == "stage":
            return [_caught(partial(self.on_stage, item)) for item in items]
        if not items:
            return []
        together = _caught(lambda: self.in_pipeline(items, _runner(runner)))
        if not isinstance(together, Exception):
            return list(together)
        if len(items) == 1:
            return [together]
        # The item that fails is found by halving: the half with it fails again, until the item runs alone.
        middle = len(items) // 2
        return self.play(items[:middle], runner) + self.play(items[middle:], runner)

    def in_pipeline(self, items: Sequence[ItemT], runner: Runner[Run]) -> list[Sequence[Any]]:
        """Runs all items in a single run, and returns the outcomes of the steps of each. Each item has its own sources,
        stage and sinks.
        """
        pipeline = Pipeline("behaviour")
        declared = [self.declare(pipeline, item, str(number)) for number, item in enumerate(items)]
        records = {record.batch: record for record in pipeline.run(runner).batches}
        return [one.outcomes(records) for one in declared]


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # whatever the error is, the other items must still run
        return error


def _runner(name: str) -> Runner[Run]:
    if name == "local":
        return LocalRunner()
    from beamlike.spark.runner import SparkRunner  # imported only here, because it is slow to import

    return SparkRunner(shards=1)


def error_line(error: Exception) -> str:
    """Formats an error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@attrs.define
class Recorder:
    """A sink that keeps the rows of each batch in memory, for runs in this process."""

    frames: dict[int, list[pl.DataFrame]] = attrs.field(factory=dict)

    distributed: ClassVar[bool] = False

    def start(self, run: str) -> None:
        self.frames.clear()

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self.frames.setdefault(part.batch, []).append(frame)

    def rows(self, batches: Iterable[int]) -> list[dict[str, Any]]:
        """Returns the rows of these batches, in order."""
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
    """Creates the command that runs the items in files, prints a line for each, and exits with 1 if any failed.

    `read` returns the items of a file, or a result if the file cannot be read.
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
