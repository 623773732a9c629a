"""`head` and `collect`: the first rows of the sources are run in process. Nothing is written or declared."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import polars as pl

from beamlike.errors import WrongType
from beamlike.io import Memory
from beamlike.io.base import Announced, AnyFrame, Faulty, Part, Pieces, Source, Unreadable, output_frame
from beamlike.io.in_process import InProcess, chunks_of
from beamlike.io.sources import Chunk, ReadInSteps
from beamlike.local.engine import Engine
from beamlike.local.runner import LocalRunner
from beamlike.logical.dead_letters import has_dead_letters
from beamlike.logical.node import Node
from beamlike.logical.registry import Registry, Write
from beamlike.plan.compiler import compile_plan
from beamlike.plan.model import Plan, SourcePlan
from beamlike.rows.dtypes import Columns
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.batch_input import batch_inputs
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit, rows_text
from beamlike.runtime.run.observers import LossReport
from beamlike.runtime.run.side_tables import with_tables_read
from stages.strategies.validators import SourceFile

_LOG = logging.getLogger("beamlike")

_SINK: Final = "@sample"
"""The name of the sink of a sample. It begins with `@`, so no name of a user can be equal to it."""


@attrs.define(eq=False)
class FirstRows:
    """A source that reads only the first `most` rows of another source. `cut` is true if that source has more."""

    source: InProcess
    most: int
    cut: bool = False
    _left: int = attrs.field(default=0, init=False)

    @property
    def bounded(self) -> bool:
        """True: the input has an end."""
        return True

    def schema(self) -> Columns:
        """Returns the columns and types of the source."""
        return self.source.schema()

    def chunks(self, rows: int) -> Iterator[Chunk]:
        """Reads chunks of the source until `most` rows are read; later files are not opened."""
        self._left = self.most
        for chunk in chunks_of(self.source, min(rows, self.most)):
            if not self._left:
                self.cut = True
                return
            if isinstance(chunk, Announced):
                yield attrs.evolve(chunk, rows=self._cut(chunk.rows))
            else:
                yield self._cut(chunk)

    def _cut(self, rows: AnyFrame | Faulty | Pieces) -> AnyFrame | Faulty | Pieces:
        if isinstance(rows, Pieces):
            first = [attrs.evolve(piece, rows=self._first(piece.rows)) for piece in rows.pieces]
            return attrs.evolve(rows, pieces=first)
        return self._first(rows)

    def _first(self, piece: AnyFrame | Faulty) -> AnyFrame | Faulty:
        """Cuts a piece to the number of rows still wanted. Dead letters are not cut."""
        count, left = _count(piece, self._left), self._left
        self._left -= min(count, left)
        if count > left and not isinstance(piece, Faulty):
            self.cut = True
            return piece.head(left)
        return piece


def _count(chunk: AnyFrame | Faulty, most: int) -> int:
    """Returns the number of rows of a chunk, at most `most + 1`; 0 for an unreadable one."""
    if isinstance(chunk, Faulty):
        return len(chunk.dead_letters)
    try:
        return int(chunk.lazy().head(most + 1).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, Unreadable):
        return 0  # when the run reads the chunk, the same error becomes a dead letter


def sample(
    pipeline: Registry, node: Node, what: str, *, input_rows: int | None, enough: int | None = None
) -> pl.DataFrame:
    """Runs a node on the first `input_rows` rows of each source, and returns its rows as a sink receives them.

    The run ends when it has `enough` rows. A warning is logged if the whole input would have given another result; dead
    letters and dropped elements are logged as in any run. Raises the errors of a run.
    """
    _require_count(f"{what}: input_rows", input_rows, 1)
    _require_count(f"{what}: n", enough, 0)
    plan = _plan(pipeline, node, input_rows)
    out = Memory()
    out.write(output_frame(pl.DataFrame(schema=plan.sinks[_SINK].schema)), Part(_SINK, 0))
    # A sample of dead letters has no limit for their number, or it would fail instead of showing them.
    limit = sys.maxsize if has_dead_letters(node) else plan.max_dead_letters
    whole = _run(plan, out, enough, limit)
    rows = out.frame() if enough is None else out.frame().head(enough)
    cut = [
        name
        for name, source in plan.sources.items()
        if isinstance(source.source, FirstRows) and source.source.cut
    ]
    if cut and (whole or plan.stages):
        _LOG.warning(
            "%s of %r has seen only the first %s of %s, as if there were no more; input_rows= says how many it sees",
            what,
            node.name,
            rows_text(input_rows or 0),
            " and ".join(map(repr, cut)),
        )
    return rows


def _run(plan: Plan, out: Memory, enough: int | None, limit: int | float | None) -> bool:
    """Runs the plan; returns True if the run reached the end of its input. Unread dead letters are discarded."""
    runner, losses = LocalRunner(), LossReport.of(plan, DeadLetterLimit(limit))
    plan = with_tables_read(plan, runner.clock())
    engine, sinks = Engine(plan, runner.clock), BatchSinks(plan, {_SINK: out}, plan.name)
    rows = 0
    for number, batch in enumerate(batch_inputs(plan, runner.chunk_rows, runner.clock, engine.inputs)):
        record = engine.run(batch, number, sinks)
        losses.take(record)
        rows += record.sinks.get(_SINK, 0)
        if enough is not None and rows >= enough:
            return False
    losses.end()
    return True


def _plan(pipeline: Registry, node: Node, input_rows: int | None) -> Plan:
    """Compiles the steps up to the node, with only the sink of the sample. The pipeline itself is not changed."""
    alone = attrs.evolve(pipeline)
    alone.writes.append(Write(_SINK, Memory(), node))
    plan = compile_plan(alone)
    if input_rows is None:
        return plan
    sources: Mapping[str, Source] = {
        name: _first_rows(source, input_rows) for name, source in plan.sources.items()
    }
    return attrs.evolve(
        plan,
        sources={name: attrs.evolve(source, source=sources[name]) for name, source in plan.sources.items()},
    )


def _first_rows(plan: SourcePlan, most: int) -> Source:
    """Limits a source to its first rows. Some sources are read in full: test streams, sources with a split per file,
    and tables whose rows are needed together.
    """
    if plan.whole:
        return plan.source  # a side input needs all rows
    source, by_file = plan.source, isinstance(plan.watermark.per_split, SourceFile)
    if by_file or isinstance(source, ReadInSteps) or not isinstance(source, InProcess):
        return source
    return FirstRows(source, most)


def _require_count(what: str, given: object, least: int) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < least):
        raise WrongType(f"{what} must be a whole number of at least {least}, not {given!r}")
