"""`bl.record`: writes batches of a run into one file, from which another machine replays them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.plan.stepped import steps_of
from beamlike.replaying.chunks import Only, chunk_facts
from beamlike.replaying.keys import KeyRows
from beamlike.replaying.opening import open_run
from beamlike.replaying.playing import Player
from beamlike.replaying.recording import BatchFacts, Recording
from beamlike.replaying.replay import player_before
from beamlike.replaying.scratch import plan_of_run, tables_of
from beamlike.replaying.state import Savepoints, SparkOptions
from beamlike.runtime.batch.kept_inputs import keep_inputs
from beamlike.runtime.recorded.batches import RecordedBatch, RecordedRun
from beamlike.runtime.recorded.reading import read_again
from stages.facts import to_facts
from stages.state.store import DictStore


def record(
    checkpoint: str | os.PathLike[str],
    pipeline: Plan | Planned,
    into: str | os.PathLike[str] | None = None,
    *,
    batches: int | tuple[int, int],
    key: Mapping[str, Any] | None = None,
    savepoint: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    session: Any = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    trust: bool = False,
) -> Recording:
    """Records batches of a run: their input, the state before them, and the rows that they gave to sinks.

    The batches are played again for this, as by `bl.replay`, and nothing is written to their sinks. `bl.replay` takes
    the file in place of a checkpoint, on any machine that has the pipeline. The file has rows of the sources and of the
    state, so it is as confidential as they are.

    Args:
        checkpoint: The checkpoint of the run.
        pipeline: The pipeline of the run, or its plan.
        into: The new file. By default none is written.
        batches: A batch, or the first and the last one.
        key: The values of key columns. The recording then has only the rows and the state of this key, if steps pass
            its columns on unchanged; `notes` says what that leaves out. The watermarks are those of all rows.
        savepoint: Savepoints of the run from which the replay may begin, as for `bl.replay`.
        session: The Spark session for the state of a run on Spark, as for `bl.replay`.
        master: The Spark master of a new session.
        config: Settings for Spark.
        trust: True to load pickled objects of a savepoint, as for `bl.replay`.

    Returns:
        The recording. `notes` has sentences about what it has.

    Raises:
        CheckpointError: The batches cannot be played again, or the run played test streams.
        UnknownKey: No stage has the key, or it is computed by steps.
        FileExistsError: The file exists.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.group_by("user").running(n=bl.count()).write("out", bl.Memory())
        <Collection 'plays.running': user String, points Int64, at String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint"))
        >>> bl.record("checkpoint", p, "ada.recording", batches=(1, 2), key={"user": "ada"}).notes
        ["only the rows of user=ada of 'plays'"]
        >>> bl.replay("ada.recording", p).record.sources["plays"].elements
        1
    """
    if into is not None and os.path.exists(into):
        raise FileExistsError(f"record: {path_text(into)} exists already")
    run = open_run(checkpoint)
    plan = plan_of_run(run, plan_of(pipeline, "record"))
    if steps_of(plan) is not None:
        raise CheckpointError(f"the run of {run.path} played test streams, which the pipeline itself has")
    first, last = (batches, batches) if isinstance(batches, int) else batches
    asked = [run.batch(number) for number in range(first, last + 1)]
    if not asked:
        raise CheckpointError(f"record: batches={batches!r} has no batch: give the first and the last one")
    player, _ = player_before(
        run, plan, first, Savepoints(savepoint, trust), SparkOptions(session, master, config)
    )
    found = _recorded(run, plan, player, asked, key or {})
    if into is not None:
        found.write(into)
    return found


def _recorded(
    run: RecordedRun, plan: Plan, player: Player, asked: list[RecordedBatch], key: Mapping[str, Any]
) -> Recording:
    of_key = KeyRows.of(plan, key) if key else None
    sinks = [*plan.sinks] if of_key is None else [*of_key.sinks]
    notes = [] if of_key is None else [*of_key.notes]
    last = None if player.engine.last is None else to_facts(player.engine.last)
    found = Recording(run.path, run.manifest, dict(key), sinks, notes, last=last)
    for name, inputs in player.engine.inputs.items():
        keep_inputs(name, player.engine.store, inputs)
    assert isinstance(player.engine.store, DictStore)
    values = dict(player.engine.store.values)
    found.state = values if of_key is None else of_key.state(plan, player.engine.store, values).values
    found.tables = {name: found.keep(rows) for name, rows in tables_of(run, plan).items()}
    for batch in asked:
        found.batches.append(_batch(found, plan, player, batch, {} if of_key is None else of_key.sources))
    if of_key is not None:
        _keep_rows_of_key(found, plan)
    return found


def _batch(
    found: Recording, plan: Plan, player: Player, batch: RecordedBatch, only: Mapping[str, Only]
) -> BatchFacts:
    """Plays a batch, and stores its input and its rows."""
    with ExitStack() as held:
        read = read_again(plan, batch, held)
        chunks = {name: chunk_facts(chunk, found.keep, only.get(name, {})) for name, chunk in read.items()}
    done = player.play(batch)
    written = {name: player.written(name, batch.number) for name in plan.sinks}
    return BatchFacts(
        batch.number,
        batch.now,
        batch.started,
        [*batch.waiting],
        batch.ended,
        [*batch.over],
        chunks,
        player.summaries,
        {name: to_facts(turn.report) for name, turn in player.turns.items()},
        to_facts(done),
        {name: found.keep(rows) for name, rows in written.items() if rows is not None},
    )


def _keep_rows_of_key(found: Recording, plan: Plan) -> None:
    """Replaces the rows for sinks by those of the key. Raises `CheckpointError` if the key alone gives other rows."""
    player = found.player(plan)
    for facts in found.batches:
        player.play(facts.batch)
        everything = {name: found.frames.pop(file) for name, file in facts.rows.items()}
        facts.rows.clear()
        for name in found.sinks:
            if (rows := player.written(name, facts.number)) is None:
                continue
            facts.rows[name] = found.keep(rows)
            if _counted(rows) - _counted(everything.get(name, rows.clear())):
                raise CheckpointError(
                    f"batch {facts.number}: the rows of the key alone give sink {name!r} rows that the run did not "
                    "give: a function in Python keeps something, or depends on other keys; leave out the key"
                )


def _counted(rows: pl.DataFrame) -> Counter[str]:
    return Counter(map(str, rows.rows(named=True)))
