"""The rows that the batches of a run took, and the panes that they gave, for questions about single rows and panes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import attrs
import polars as pl

from beamlike.errors import CheckpointError, InputGone
from beamlike.io.base import Announced, Faulty, FromFile, Pieces, Unreadable
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.plan.stepped import steps_of
from beamlike.replaying.opening import open_run
from beamlike.replaying.playing import Player
from beamlike.replaying.replay import player_before
from beamlike.replaying.scratch import plan_of_run
from beamlike.replaying.state import Savepoints, SparkOptions
from beamlike.runtime.batch.ingested import AllChunks, Chunk
from beamlike.runtime.recorded.batches import RecordedBatch
from beamlike.runtime.recorded.reading import read_again
from windowing.time import MIN_TIME


@attrs.frozen(eq=False)
class SourceRows:
    """Rows that a batch read from a source, in order. `places` has the file of each, and its number in what the batch
    read of that file, from 1 on.
    """

    frame: pl.DataFrame
    places: list[tuple[str, int]]


@attrs.frozen(eq=False)
class PastBatch:
    """A batch: the rows of its sources, the panes of its stages, and their input watermarks (us) before it.

    `panes` and `before` are empty if the batch could not be played.
    """

    number: int
    now: int
    rows: Mapping[str, SourceRows]
    panes: Mapping[str, pl.DataFrame] = attrs.field(factory=dict)
    before: Mapping[str, int] = attrs.field(factory=dict)
    sinks: Mapping[str, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Past:
    """The batches of a run that are still known. `notes` has sentences about those that are not."""

    plan: Plan
    batches: list[PastBatch] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)

    @classmethod
    def of(
        cls,
        checkpoint: str | os.PathLike[str],
        pipeline: Plan | Planned,
        savepoints: Savepoints = Savepoints(),  # noqa: B008  it is frozen
        spark: SparkOptions = SparkOptions(),  # noqa: B008  it is frozen
    ) -> Self:
        """Reads all batches that are still known again, and plays them, as far as their state is known."""
        run = open_run(checkpoint)
        plan = plan_of_run(run, plan_of(pipeline, "trace"))
        if steps_of(plan) is not None:
            raise CheckpointError(
                f"the run of {run.path} played test streams, whose rows are in the pipeline itself"
            )
        past = cls(plan)
        player: Player | None = None
        try:
            player, _ = player_before(run, plan, run.first, savepoints, spark)
        except CheckpointError as error:
            past.notes.append(f"panes are not played again: {error}")
        if run.first > 0:
            past.notes.append(f"rows of batches before {run.first} are not known any more")
        for number in sorted(run.batches):
            player = past._add(run.batches[number], player)
        return past

    def _add(self, batch: RecordedBatch, player: Player | None) -> Player | None:
        """Adds a batch. Returns the player if it can go on after that."""
        try:
            with ExitStack() as held:
                chunks = read_again(self.plan, batch, held)
                rows = {name: _source_rows(chunk) for name, chunk in chunks.items()}
        except InputGone as error:
            self.notes.append(
                f"{error}; panes of later batches are not played again" if player else str(error)
            )
            return None
        if player is None:
            self.batches.append(PastBatch(batch.number, batch.now, rows))
            return None
        last = player.engine.last
        before = {name: MIN_TIME if last is None else last.stages[name].input for name in self.plan.stages}
        done = player.play(batch)
        panes = {name: turn.step.panes for name, turn in player.turns.items()}
        self.batches.append(PastBatch(batch.number, batch.now, rows, panes, before, done.sinks))
        return player


def _source_rows(chunk: Chunk) -> SourceRows:
    frames, places, counts = list[pl.DataFrame](), list[tuple[str, int]](), dict[str, int]()
    for file, frame in _leaves(chunk, ""):
        first = counts.get(file, 0)
        places += [(file, first + number) for number in range(1, len(frame) + 1)]
        counts[file] = first + len(frame)
        frames.append(frame)
    return SourceRows(pl.concat(frames, how="vertical_relaxed") if frames else pl.DataFrame(), places)


def _leaves(chunk: Chunk, file: str) -> Iterator[tuple[str, pl.DataFrame]]:
    match chunk:
        case Announced(rows, _):
            yield from _leaves(rows, file)
        case FromFile(rows):
            yield from _leaves(rows, chunk.file)
        case AllChunks(chunks) | Pieces(chunks):
            for one in chunks:
                yield from _leaves(one, file)
        case Faulty():
            pass  # what cannot be read is no row
        case pl.DataFrame() | pl.LazyFrame():
            try:
                yield file, chunk.lazy().collect()
            except Unreadable:
                return


def row_of(rows: SourceRows, number: int) -> dict[str, Any]:
    """Returns a row as a dict."""
    return rows.frame.row(number, named=True)
