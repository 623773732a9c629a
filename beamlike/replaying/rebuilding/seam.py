"""The input of a run up to its newest position: earlier input, then the recorded batches, each row once.

The log of a checkpoint has the input of the last batches only. Of the files before them, the positions of the source
have the order, but not the batches. Topics and tables are read from their beginning to the first recorded batch:

  files read     a  b  c  d  e | f  g  h       the position after batch 107
  known as       one batch     | batches 105, 106, 107
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.complete import OVER, without_end
from beamlike.io.files.reader import FileProgress
from beamlike.io.sources import ReadInFiles
from beamlike.local.savepoint import places
from beamlike.plan.manifest import Runner
from beamlike.plan.model import Plan
from beamlike.replaying.rebuilding.past import Past
from beamlike.runtime.recorded.batches import STEPS, RecordedBatch, RecordedRun
from beamlike.runtime.recorded.taken import BatchTaken, FilesTaken, NotLogged, SpanTaken, Taken, TakenFile
from beamlike.runtime.savepoint.savepoint import Savepoint


@attrs.frozen
class Input:
    """The batches up to the position of a savepoint. `earlier` describes, by source, the input that is read before the
    recorded batches, as one batch.
    """

    batches: tuple[RecordedBatch, ...]
    earlier: Mapping[str, str]


def input_up_to(saved: Savepoint, run: RecordedRun, plan: Plan, since: Mapping[str, int]) -> Input:
    """Returns the input of the sources of the plan up to the position of the savepoint. `since` has, by source, the
    event time (us) before which no row is needed.

    Raises `CheckpointError`, which names the source, if a row would be read twice, or not at all.
    """
    known = [run.batches[number] for number in sorted(run.batches) if number <= saved.batch]
    if not known or [one.number for one in known] != [*range(known[0].number, saved.batch + 1)]:
        raise CheckpointError(f"the log of {run.path} does not have all batches up to batch {saved.batch}")
    known = [_of_plan(one, plan) for one in known]
    early = dict[str, FilesTaken | BatchTaken]()
    for name, source in plan.sources.items():
        taken = [one.taken[name] for one in known if name in one.taken]
        forgotten = run.first > 0 or run.manifest.get("restored")
        if name not in run.manifest["sources"]:
            continue
        _require_logged(name, taken)
        if isinstance(source.source, ReadInFiles) and name in saved.offsets:
            early[name] = _earlier_files(name, taken, dict(places(name, saved)))
            continue
        if forgotten:
            past = Past(name, source, saved, run)
            early[name], merged = past.before(taken, since.get(name))
            if merged:
                known = [_without(one, name, taken[0]) for one in known]
        _require_continuous(name, taken, saved, run, whole=source.whole)
    told = {name: text for name, taken in early.items() if (text := _described(taken))}
    if not told:
        return Input(tuple(known), {})
    first = attrs.evolve(
        known[0],
        number=known[0].number - 1,
        taken={name: early[name] for name in told},
        ended=False,
        commanded=frozenset(),
    )
    return Input((first, *known), told)


def _without(batch: RecordedBatch, name: str, taken: Taken) -> RecordedBatch:
    """Returns the batch without this input of a source, which is read before all batches."""
    if batch.taken.get(name) is not taken:
        return batch
    over = batch.commanded | ({name} if name in batch.over else set())
    rest = {source: one for source, one in batch.taken.items() if source != name}
    return attrs.evolve(batch, taken=rest, commanded=over)


def _described(taken: FilesTaken | BatchTaken) -> str:
    """Describes earlier input; empty if there is none."""
    if isinstance(taken, FilesTaken):
        return f"{len(taken.files):,} earlier files" if taken.files else ""
    given = [one.input for one in taken.planned if one.input not in (None, {"begin": {}, "end": {}})]
    spans = ", ".join(taken.texts()) if any(isinstance(one, dict) for one in given) else ""
    return f"its earlier rows{f' ({spans})' if spans else ''}" if given else ""


def _of_plan(batch: RecordedBatch, plan: Plan) -> RecordedBatch:
    if STEPS in batch.taken:
        raise CheckpointError("the run played test streams, whose rows are in the pipeline itself")
    taken = {name: one for name, one in batch.taken.items() if name in plan.sources}
    return attrs.evolve(batch, taken=taken)


def _require_logged(name: str, taken: list[Taken]) -> None:
    for one in taken:
        if isinstance(one, NotLogged):
            raise CheckpointError(f"source {name!r} cannot be read again: {one.why}")


def _earlier_files(name: str, taken: list[Taken], read: Mapping[str, FileProgress]) -> FilesTaken:
    """Returns the files, and pieces of files, that were read before these. Raises `CheckpointError` if the pieces of a
    file overlap or have gaps.
    """
    logged = dict[str, list[TakenFile]]()
    for one in taken:
        for file in one.files if isinstance(one, FilesTaken) else ():
            logged.setdefault(file.file, []).append(file)
    if unknown := [file for file in logged if file not in read]:
        raise _seam(name, f"the file {unknown[0]!r} was read in a batch, and its position does not have it")
    early = [
        before
        for file, place in sorted(read.items(), key=lambda item: item[1].number)
        if file != OVER and (before := _before(name, file, place, logged.get(file, []))) is not None
    ]
    return FilesTaken(tuple(early), tuple(file.file for file in early))


def _before(name: str, file: str, place: FileProgress, logged: list[TakenFile]) -> TakenFile | None:
    """Returns the part of a file that was read before the logged parts; None if there is none."""
    if not logged:
        return TakenFile(file) if place.pieces is None else TakenFile(file, 0, place.pieces, place.rows or 0)
    parts = sorted(logged, key=lambda part: part.first)
    for one, other in itertools.pairwise(parts):
        if one.count is None or one.first + one.count != other.first:
            raise _seam(name, f"{one} is followed by {other}")
    last = parts[-1]
    if place.pieces is not None and (last.count is None or last.first + last.count != place.pieces):
        raise _seam(
            name, f"{last} is the last that a batch read, and the position is after {place.pieces} pieces"
        )
    first = parts[0]
    return TakenFile(file, 0, first.first, first.rows, first.stamp) if first.first else None


def _require_continuous(
    name: str, taken: list[Taken], saved: Savepoint, run: RecordedRun, *, whole: bool
) -> None:
    """Raises `CheckpointError` if the batches do not lead from the beginning of a source to the saved position."""
    spans = [one for one in taken if isinstance(one, SpanTaken)]
    for one, other in itertools.pairwise(spans):
        if one.end != other.begin:
            raise _seam(name, f"a batch ends at {one.end}, and the next one begins at {other.begin}")
    if spans and spans[-1].end != saved.offsets[name][-1]:
        raise _seam(
            name, f"the last batch ends at {spans[-1].end}, the savepoint at {saved.offsets[name][-1]}"
        )
    if whole or not taken or run.manifest["runner"] != Runner.LOCAL:
        return
    reached = dict[str, Any]()
    for position in _positions(taken):
        reached |= position
    if without_end(reached) != without_end(saved.positions.get(name, {})):
        raise _seam(name, f"the batches end at {reached}, the savepoint at {saved.positions.get(name)}")


def _positions(taken: list[Taken]) -> Iterator[Mapping[str, Any]]:
    for one in taken:
        if isinstance(one, BatchTaken):
            yield from (planned.position for planned in one.planned)


def _seam(name: str, what: str) -> CheckpointError:
    return CheckpointError(f"source {name!r}: rows would be missing or there twice: {what}")
