"""`bl.rebuild`: a savepoint of a run in which some stages were built anew from the recorded input."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import CheckpointError, UnknownStage, listed, nearest
from beamlike.io.base import output_frame
from beamlike.io.files.paths import absolute, path_text
from beamlike.io.test_stream.times import TimeLike, instant
from beamlike.local import savepoint as in_process
from beamlike.observe.words import rows as rows_text
from beamlike.plan.differences import Remedy, refusal
from beamlike.plan.manifest import Runner, describe
from beamlike.plan.matching import Fit, fitted
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.plan.tables import with_tables
from beamlike.replaying.opening import open_run
from beamlike.replaying.rebuilding.building import Built, build, only, with_stages_after
from beamlike.replaying.rebuilding.past import needed_since
from beamlike.replaying.rebuilding.seam import Input, input_up_to
from beamlike.replaying.scratch import tables_of
from beamlike.replaying.state import SparkOptions
from beamlike.runtime.loop.checkpoint import LocalFiles
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.runtime.run.side_tables import at_hand
from beamlike.runtime.run.unfinished import FACTS, unfinished
from beamlike.runtime.savepoint.savepoint import Savepoint, not_empty
from beamlike.system.path_names import file_name, is_remote
from stages.state.store import DictStore

_REMEDY: Final = "name it in stage= (--stage), too, if it is a stage, or continue with the former declaration"


@attrs.frozen(eq=False)
class Rebuilt:
    """The result of `bl.rebuild`. Its text is a report.

    Attributes:
        savepoint: The folder of the new savepoint.
        batch: The last batch of the run that is in it.
        stages: The stages that were built anew.
        kept: The stages that go on with the state of the run.
        read: The number of rows that were read, by source.
        before: The number of rows before `since=`, by the stage that did not receive them.
        rows: The number of rows that the stages built anew emitted for each sink.
        notes: Sentences about what could not be as in the run.
        runner: The runner of the run, "spark" or "local".
        shards: The number of shards of the run; the savepoint has one.
    """

    savepoint: str
    batch: int
    stages: tuple[str, ...]
    kept: tuple[str, ...]
    read: Mapping[str, int]
    before: Mapping[str, int]
    rows: Mapping[str, int]
    notes: tuple[str, ...]
    runner: str
    shards: int

    def lines(self) -> Iterator[str]:
        """Yields the report, line by line."""
        yield f"{self.savepoint}: the run after batch {self.batch}"
        yield f"  rebuilt: {', '.join(self.stages)}"
        yield f"  continues: {', '.join(self.kept) or 'no other stage'}"
        for name, count in self.read.items():
            yield f"  source {name}: {rows_text(count, 'row')} read, up to the position of the run"
        for name, count in self.before.items():
            yield f"  stage {name}: {rows_text(count, 'row')} before the given time left out"
        for name, count in self.rows.items():
            yield f"  sink {name}: {rows_text(count, 'row')} of the past"
        yield from (f"  note: {note}" for note in self.notes)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def rebuild(
    checkpoint: str | os.PathLike[str],
    savepoint: str | os.PathLike[str],
    pipeline: Plan | Planned,
    *,
    stage: str | Iterable[str],
    since: TimeLike | None = None,
    into: str | os.PathLike[str] | None = None,
    session: Any = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Rebuilt:
    """Writes a savepoint of a stopped run in which stages that have changed are built anew from the recorded input.

    The input of the run is played once more, in this process, through these stages, the stages before them, and those
    after them, from the first row to the position of the run. The savepoint has the new state of these stages and of
    those after them, the state of the run for all others, and the positions of the run. So a run that is restored from
    it reads no row twice, and leaves none out.

    Sinks receive nothing: rows that were written stay as they are.

    Args:
        checkpoint: The checkpoint of the run. It is not changed.
        savepoint: The new folder. It exists only if it is complete.
        pipeline: The pipeline with the changes, or its plan.
        stage: The name of the stage that has changed, or several. Stages that read them are built anew, too.
        since: Rows with an earlier event time are not passed to the stages that are built anew.
        into: A new folder for the rows that these stages emit for sinks, as Parquet files by sink and batch.
        session: The Spark session for a run on Spark, as for `bl.savepoint.save`.
        master: The Spark master of a new session.
        config: Settings for Spark.

    Raises:
        UnknownStage: The pipeline has no such stage.
        CheckpointError: Another part of the pipeline has changed, or the input of the run is not known any more.
        InputGone: A source no longer has the input of a batch. It is a `CheckpointError`.

    Example:
        >>> bl.rebuild("checkpoint", "savepoints/new", p, stage="sessions").read  # doctest: +SKIP
        {'plays': 120000}
        >>> bl.savepoint.restore("savepoints/new", "checkpoint-2", p, runner="local")  # doctest: +SKIP
        []
    """
    plan = plan_of(pipeline, "rebuild")
    earliest = None if since is None else instant(since)
    anew = with_stages_after(plan, _known(plan, [stage] if isinstance(stage, str) else [*stage]))
    run, target = open_run(checkpoint), _new_folder(savepoint)
    fit = _fitted(run, plan, anew)
    rows = None if into is None else _new_folder(into)
    with ExitStack() as held:
        # The savepoint, which is entered first, gets its name last.
        folder = held.enter_context(unfinished(target))
        outputs = None if rows is None else held.enter_context(unfinished(rows))
        saved = _save(run, folder, SparkOptions(session, master, config))
        part = _with_tables(run, only(fit.plan, anew))
        given = input_up_to(saved, run, part, needed_since(part, anew, earliest))
        built = build(part, anew, given.batches, earliest, _writer(outputs))
        _write(saved, fit.plan, anew, built.state)
    kept = tuple(name for name in fit.plan.stages if name not in anew)
    return Rebuilt(
        target,
        saved.batch,
        tuple(name for name in fit.plan.stages if name in anew),
        kept,
        dict(built.read),
        dict(built.before),
        dict(built.rows),
        tuple(_notes(run, fit, kept, saved, given, built)),
        run.manifest["runner"],
        run.manifest["shards"],
    )


def _known(plan: Plan, stages: list[str]) -> list[str]:
    for name in stages:
        if name not in plan.stages:
            raise UnknownStage(
                f"rebuild: there is no stage {name!r}; the stages are {listed(plan.stages)}{nearest(name, plan.stages)}"
            )
    if not stages:
        raise ValueError("rebuild: stage= names no stage")
    return stages


def _new_folder(given: str | os.PathLike[str]) -> str:
    folder = absolute(path_text(given))
    if is_remote(folder):
        raise CheckpointError(f"{folder} is not on this machine; rebuild into a local folder, and copy it")
    if os.path.isdir(folder) and os.listdir(folder):
        raise not_empty(folder, "rebuild")
    return folder


def _fitted(run: RecordedRun, plan: Plan, anew: frozenset[str]) -> Fit:
    """Compares the plan with the run, but not its stages that are built anew.

    Raises `CheckpointError` if another part has changed.
    """
    stages = {name: facts for name, facts in run.manifest["stages"].items() if name not in anew}
    manifest = {**run.manifest, "stages": stages}
    fit = fitted(plan, manifest, run.manifest["shards"], Runner(run.manifest["runner"]))
    if refused := [one for one in fit.differences if one.remedy != Remedy.RESTORE]:
        remedies = {Remedy.ANEW: _REMEDY, Remedy.NAME: _REMEDY}
        raise CheckpointError(refusal(refused, f"the checkpoint {run.path}", remedies))
    if renamed := sorted(anew - fit.plan.stages.keys()):
        raise CheckpointError(
            f"stage {renamed[0]!r} is like a stage of the run with another name; give it a name of its own, with "
            ".named(...), to rebuild it"
        )
    return fit


def _save(run: RecordedRun, folder: str, spark: SparkOptions) -> Savepoint:
    if run.manifest["runner"] == Runner.LOCAL:
        return in_process.save(run.path, folder)
    from beamlike.spark.savepoint import savepoint as on_spark

    return on_spark.save(run.path, folder, session=spark.session, master=spark.master, config=spark.config)


def _with_tables(run: RecordedRun, plan: Plan) -> Plan:
    for name in plan.tables:
        if name not in run.manifest.get("tables", {}):
            raise CheckpointError(
                f"the lookup table {name!r} is new: the run has no rows of it with which its past could be played"
            )
    return with_tables(plan, at_hand(tables_of(run, plan)))


def _writer(folder: str | None) -> Any:
    """Returns the function that writes rows for a sink into its folder; it does nothing without a folder."""

    def write(sink: str, batch: int, rows: pl.DataFrame) -> None:
        if folder is not None:
            path = Path(folder, file_name(sink))
            path.mkdir(parents=True, exist_ok=True)
            number = len([*path.iterdir()])
            output_frame(rows).write_parquet(path / f"{number:06}-batch-{max(batch, 0)}.parquet")

    return write


def _write(saved: Savepoint, plan: Plan, anew: frozenset[str], state: DictStore) -> None:
    """Replaces the state in the folder of a savepoint: the stages of the plan on one shard, some of them with a new
    state.
    """
    kept = {name: stage for name, stage in plan.stages.items() if name not in anew}
    store = in_process.state_of(saved, attrs.evolve(plan, stages=kept), LocalFiles())
    os.remove(saved.at(FACTS))
    shutil.rmtree(saved.at("state"))
    in_process.write_state(saved, {**store.values, **state.values})
    described = describe(plan, 1, Runner(saved.manifest["runner"]))
    changed = attrs.evolve(saved, manifest={**saved.manifest, **described})
    Path(saved.at(FACTS)).write_text(changed.listing(LocalFiles()).to_json(), encoding="utf-8")


def _notes(
    run: RecordedRun, fit: Fit, kept: Iterable[str], saved: Savepoint, given: Input, built: Built
) -> Iterator[str]:
    for name, what in given.earlier.items():
        yield (
            f"source {name!r}: the batches of {what} are not known any more; they were read as one batch, so no row of "
            "them is late, also if it was in the run"
        )
    for name, count in built.dropped.items():
        if count:
            yield f"stage {name!r} drops {rows_text(count, 'late element')}"
    for name in kept:
        if name not in run.manifest["stages"]:
            yield f"stage {name!r} is new and begins without state; name it, too, to build it from the past"
    yield from saved.left_out(fit.described)
