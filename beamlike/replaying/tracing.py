"""`bl.trace_pane` and `bl.trace_row`: the rows of a pane, and the path of a row through the steps, by a replay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import polars as pl

from beamlike.errors import UnknownColumn, UnknownName, UnknownStage, listed, nearest
from beamlike.io.base import output_frame
from beamlike.observe.waiting.window_query import Window, parse_key, parse_window
from beamlike.observe.words import window_text
from beamlike.plan.lineage import sources_of_column
from beamlike.plan.model import Plan, Planned
from beamlike.plan.route import addressed
from beamlike.plan.run_graph import describe_run
from beamlike.replaying.arriving import Wanted, arriving, in_window, is_late, matching, sent_by
from beamlike.replaying.chunks import rows_of_key
from beamlike.replaying.past import Past, PastBatch, row_of
from beamlike.replaying.state import Savepoints, SparkOptions
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.batch.ingest import ingest
from stages.operator import MAIN
from windowing.columns import PANE_TIMING, WINDOW_END, WINDOW_START
from windowing.time import MIN_TIME


@attrs.frozen(order=True)
class TracedRow:
    """A row of a source: its batch, its file, and its number in what the batch read of that file, from 1 on.

    `late`: it arrived when its window was over, and is in no pane.
    """

    batch: int
    source: str
    file: str
    number: int
    row: dict[str, Any] = attrs.field(order=False)
    late: bool = attrs.field(default=False, order=False)

    def __str__(self) -> str:
        place = f"{self.file} row {self.number}" if self.file else f"row {self.number}"
        late = "; late: it is in no pane" if self.late else ""
        return f"batch {self.batch}, {self.source}, {place}: {_row_text(self.row)}{late}"


@attrs.frozen
class PaneTrace:
    """The rows that made the panes of a window: the `panes`, as text with their batches, and the `rows`.

    `notes` has sentences about what is not known any more.
    """

    panes: tuple[str, ...]
    rows: tuple[TracedRow, ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields the trace as text."""
        yield from self.panes or ["no pane of it is known"]
        yield f"made by {len(self.rows)} rows:"
        yield from (f"  {row}" for row in self.rows)
        yield from self.notes

    def __str__(self) -> str:
        return "\n".join(self.lines())


def trace_pane(
    checkpoint: str | os.PathLike[str],
    pipeline: Plan | Planned,
    stage: str,
    *,
    key: Mapping[str, Any] | str | None = None,
    window: str | None = None,
    savepoint: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    session: Any = None,
    master: str | None = None,
    trust: bool = False,
) -> PaneTrace:
    """Finds the rows of the sources that made the panes of a key and window, through all stages before it.

    The batches that the checkpoint still knows are read and played again, in this process and without their sinks.

    Args:
        checkpoint: The checkpoint of the run.
        pipeline: The pipeline of the run, or its plan.
        stage: The name of the stage.
        key: The key, as a dict or as tables show it. By default all keys.
        window: START/END, or a time in the window, in ISO 8601. By default all windows.
        savepoint: Savepoints of the run from which the replay may begin, as for `bl.replay`.
        session: The Spark session for the state of a run on Spark, as for `bl.replay`.
        master: The Spark master of a new session.
        trust: True to load pickled objects of a savepoint, as for `bl.replay`.

    Raises:
        UnknownStage: The run has no such stage. Keys and windows that it cannot have raise `UnknownKey` and
            `UnknownWindow`.
        CheckpointError: The pipeline does not fit the run.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).named("counts").write(
        ...     "out", bl.Memory()
        ... )
        <Collection 'counts': user String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
        >>> trace = bl.trace_pane("checkpoint", p, "counts", key="bob", window="2026-01-31T12:00Z")
        >>> trace.rows[0].row["points"], trace.rows[0].batch
        (5, 1)
    """
    past = Past.of(checkpoint, pipeline, Savepoints(savepoint, trust), SparkOptions(session, master))
    plan = past.plan
    if stage not in plan.stages:
        known = plan.stages
        raise UnknownStage(
            f"there is no stage {stage!r}; the stages are {listed(known)}{nearest(stage, known)}"
        )
    wanted = _wanted(plan, stage, key, window)
    found = dict[tuple[int, str, str, int], TracedRow]()
    _trace(past, wanted, found, set())
    panes = [text for batch in past.batches for text in _panes(plan, batch, wanted)]
    return PaneTrace(tuple(panes), tuple(sorted(found.values())), tuple(past.notes))


def _wanted(plan: Plan, stage: str, key: Mapping[str, Any] | str | None, window: str | None) -> Wanted:
    described = describe_run(plan).stages[stage]
    if isinstance(key, str):
        parsed = parse_key(key, stage, described)
        if parsed is None:
            raise UnknownName(f"stage {stage!r}: give its key as a dict of {listed(described.keys)}")
        key = parsed.row(0, named=True)
    for name in key or {}:
        if name not in described.keys:
            raise UnknownName(
                f"stage {stage!r} has no key {name!r}; it has {listed(described.keys)}{nearest(name, described.keys)}"
            )
    return Wanted(
        stage,
        tuple((key or {}).items()),
        None if window is None else parse_window(window, stage, described),
    )


def _trace(
    past: Past, wanted: Wanted, found: dict[tuple[int, str, str, int], TracedRow], seen: set[Wanted]
) -> None:
    """Adds the rows of sources that arrive at a part of a stage, directly or as panes of other stages."""
    if wanted in seen:
        return
    seen.add(wanted)
    plan = past.plan
    operator = plan.stages[wanted.stage].stage.operator
    producers = {name for role in operator.inputs for name in plan.stages[wanted.stage].reads(role)}
    for batch in past.batches:
        for name in plan.producers:
            if name in producers and name in plan.sources:
                for row in _rows(plan, batch, name, wanted):
                    known = found.get((row.batch, row.source, row.file, row.number))
                    if known is None or known.late:
                        found[row.batch, row.source, row.file, row.number] = row
            elif name in producers:
                for before in _made_by(plan, batch, name, wanted):
                    _trace(past, before, found, seen)


def _rows(plan: Plan, batch: PastBatch, source: str, wanted: Wanted) -> Iterator[TracedRow]:
    """Yields the rows of a source that arrive."""
    if source not in batch.rows:
        return
    rows = batch.rows[source]
    frame = rows.frame.with_row_index("__number")
    for name, value in wanted.key:
        # The rows of other keys need not be tried, if the key is a column of the source.
        column = (sources_of_column(plan, wanted.stage, name) or {}).get(source)
        if column in rows.frame.columns:
            frame = rows_of_key(frame, {column: value})
    sent = sent_by(plan, source, batch.now)
    plain = frame.drop("__number")
    for place in matching(plain, lambda part: arriving(plan, wanted, sent(part)) is not None):
        number = frame["__number"][place]
        windows = arriving(plan, wanted, sent(plain[place : place + 1]))
        assert windows is not None
        late = is_late(plan, wanted.stage, windows, batch.before.get(wanted.stage))
        yield TracedRow(batch.number, source, *rows.places[int(number)], row_of(rows, number), late)


def _made_by(plan: Plan, batch: PastBatch, producer: str, wanted: Wanted) -> Iterator[Wanted]:
    """Yields the parts of a stage whose panes arrive."""
    if producer not in batch.panes:
        return
    panes, sent = batch.panes[producer], sent_by(plan, producer, batch.now)
    for place in matching(panes, lambda part: arriving(plan, wanted, sent(part)) is not None):
        yield _part(plan, producer, panes.row(place, named=True))


def _part(plan: Plan, stage: str, pane: Mapping[str, Any]) -> Wanted:
    """Returns the key and window of a pane."""
    operator = plan.stages[stage].stage.operator
    keys = [name for name in operator.inputs[MAIN].keys if name in pane]
    has_window = operator.panes is not None and pane.get(WINDOW_START) is not None
    window = Window(pane[WINDOW_START], pane[WINDOW_END]) if has_window else None
    return Wanted(stage, tuple((name, pane[name]) for name in keys), window)


def _panes(plan: Plan, batch: PastBatch, wanted: Wanted) -> Iterator[str]:
    """Yields the panes of a part of a stage in a batch, as text."""
    panes = batch.panes.get(wanted.stage)
    if panes is None or panes.is_empty():
        return
    mine = rows_of_key(panes, {name: value for name, value in wanted.key if name in panes.columns})
    if wanted.window is not None and WINDOW_START in mine.columns:
        mine = mine.filter(
            pl.col(WINDOW_START) == wanted.window.start, pl.col(WINDOW_END) == wanted.window.end
        )
    shown = output_frame(mine)
    for number, row in enumerate(mine.iter_rows(named=True)):
        users = {
            name: value
            for name, value in shown.row(number, named=True).items()
            if name in plan.stages[wanted.stage].schema
        }
        timing = row.get(PANE_TIMING)
        what = "row" if timing is None else f"{timing} pane"
        yield f"{what}{_window_text(row)} in batch {batch.number}: {_row_text(users)}"


def _window_text(pane: Mapping[str, Any]) -> str:
    """Formats the window of a pane; it is empty for the global window, and for rows without a window."""
    start = pane.get(WINDOW_START)
    return "" if start is None or start <= MIN_TIME else f" of {window_text(start, pane[WINDOW_END])}"


def trace_row(
    checkpoint: str | os.PathLike[str],
    pipeline: Plan | Planned,
    source: str,
    row: Mapping[str, Any],
    *,
    savepoint: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    session: Any = None,
    master: str | None = None,
    trust: bool = False,
) -> list[str]:
    """Reports what became of rows of a source: dropped, a dead letter, or in which panes they are.

    The batches that the checkpoint still knows are read and played again, in this process and without their sinks.

    Args:
        checkpoint: The checkpoint of the run.
        pipeline: The pipeline of the run, or its plan.
        source: The name of the source.
        row: The values of some columns, by which the rows are found.
        savepoint: Savepoints of the run from which the replay may begin, as for `bl.replay`.
        session: The Spark session for the state of a run on Spark, as for `bl.replay`.
        master: The Spark master of a new session.
        trust: True to load pickled objects of a savepoint, as for `bl.replay`.

    Raises:
        UnknownName: There is no such source.
        UnknownColumn: The source has no such column.
        CheckpointError: The pipeline does not fit the run.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).named("counts").write(
        ...     "out", bl.Memory()
        ... )
        <Collection 'counts': user String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
        >>> for line in bl.trace_row("checkpoint", p, "plays", {"user": "bob"}):
        ...     print(line)
        batch 1, plays, row 1: user='bob', points=5, at='2026-01-31T12:00:40Z'
          at stage counts: on_time pane of [2026-01-31T12:00:00Z, 2026-01-31T12:01:00Z) in batch 2: user='bob', n=1
            written to sink 'out' in batch 2
    """
    past = Past.of(checkpoint, pipeline, Savepoints(savepoint, trust), SparkOptions(session, master))
    plan = past.plan
    if source not in plan.sources:
        raise UnknownName(
            f"there is no source {source!r}; {listed(plan.sources)}{nearest(source, plan.sources)}"
        )
    for column in row:
        if column not in (raw := plan.sources[source].raw):
            raise UnknownColumn(
                f"source {source!r} has no column {column!r}; it has {listed(raw)}{nearest(column, raw)}"
            )
    lines = [line for batch in past.batches for line in _became(past, batch, source, row)]
    return [*(lines or [f"no row of source {source!r} has {_row_text(row)}"]), *past.notes]


def _became(past: Past, batch: PastBatch, source: str, row: Mapping[str, Any]) -> Iterator[str]:
    if source not in batch.rows or batch.rows[source].frame.is_empty():
        return
    rows = batch.rows[source]
    frame = rows.frame.with_row_index("__number")
    for number in rows_of_key(frame, row)["__number"]:
        yield str(TracedRow(batch.number, source, *rows.places[int(number)], row_of(rows, number)))
        yield from _of_row(past, batch, source, rows.frame[number : number + 1])


def _of_row(past: Past, batch: PastBatch, source: str, row: pl.DataFrame) -> Iterator[str]:
    got = ingest(past.plan.sources[source], row.lazy(), batch.now)
    for letters in (got.lost, got.dead_letters):
        for step, error in letters.errors.items():
            if letters.counts.get(step):
                yield f"  a dead letter of step {step!r}: {error}"
    sent = {
        where: rows for where, rows in got.frames.items() if len(rows) and addressed(where)[0] != UNCLAIMED
    }
    if not sent and not (got.lost.total or got.dead_letters.total):
        yield "  it goes nowhere: steps filter it out"
    yield from _followed(past, batch, sent, "  ")


def _followed(past: Past, batch: PastBatch, sent: Mapping[str, pl.DataFrame], indent: str) -> Iterator[str]:
    """Yields where rows arrive, and the panes that they are in."""
    for where, rows in sent.items():
        consumer, role = addressed(where)
        if consumer in past.plan.sinks:
            yield f"{indent}written to sink {consumer!r} in batch {batch.number}"
        elif consumer in past.plan.stages:
            yield from _at_stage(past, batch, consumer, role, rows, indent)


def _at_stage(
    past: Past, batch: PastBatch, stage: str, role: str, rows: pl.DataFrame, indent: str
) -> Iterator[str]:
    plan = past.plan
    operator = plan.stages[stage].stage.operator
    windows = in_window(plan, stage, rows, None)
    if is_late(plan, stage, windows, batch.before.get(stage)):
        yield f"{indent}late at stage {stage}: its window was over, and it was dropped in batch {batch.number}"
        return
    keys = [name for name in operator.inputs[role].keys if name in windows.columns]
    later = [one for one in past.batches if one.number >= batch.number]
    for row in windows.iter_rows(named=True):
        key = tuple((name, row[name]) for name in keys)
        own = Window(row[WINDOW_START], row[WINDOW_END]) if operator.panes is not None else None
        wanted = _final(later, stage, Wanted(stage, key, own))
        panes = [(one, text) for one in later for text in _panes(plan, one, wanted)]
        # Rows of a stage without windows may be due to any row of the key.
        at = f"at stage {stage}" if own is not None else f"at stage {stage}, for its key since then"
        for _, text in panes:
            yield f"{indent}{at}: {text}"
        if not panes:
            yield f"{indent}at stage {stage}: in no pane yet, in its state"
        yield from _after(past, later, wanted, indent)


def _final(batches: Iterable[PastBatch], stage: str, wanted: Wanted) -> Wanted:
    """Returns the part with the window that its own window has merged into."""
    if wanted.window is None:
        return wanted
    for batch in batches:
        panes = batch.panes.get(stage)
        if panes is None or WINDOW_START not in panes.columns:
            continue
        mine = rows_of_key(
            panes, {name: value for name, value in wanted.key if name in panes.columns}
        ).filter(pl.col(WINDOW_START) <= wanted.window.start, pl.col(WINDOW_END) >= wanted.window.end)
        for start, end in mine.select(WINDOW_START, WINDOW_END).iter_rows():
            return attrs.evolve(wanted, window=Window(start, end))
    return wanted


def _after(past: Past, batches: Iterable[PastBatch], wanted: Wanted, indent: str) -> Iterator[str]:
    """Yields what became of the panes of a part."""
    for batch in batches:
        panes = batch.panes.get(wanted.stage)
        if panes is None or wanted.window is None or WINDOW_START not in panes.columns:
            continue
        mine = rows_of_key(
            panes, {name: value for name, value in wanted.key if name in panes.columns}
        ).filter(pl.col(WINDOW_START) == wanted.window.start, pl.col(WINDOW_END) == wanted.window.end)
        if len(mine):
            sent = sent_by(past.plan, wanted.stage, batch.now)(mine)
            yield from _followed(
                past, batch, {where: rows for where, rows in sent.items() if len(rows)}, indent + "  "
            )


def _row_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
