"""The batches in the journal of a run in process, as recorded batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamlike.io.complete import is_over, only_ends
from beamlike.io.files.reader import FileBatch
from beamlike.io.sources import PlannedBatch, Position
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.recorded.batches import STEPS, RecordedBatch, RecordedRun
from beamlike.runtime.recorded.taken import BatchTaken, FilesTaken, StepTaken, Taken, TakenFile
from stages.facts import from_facts


def recorded_run(checkpoint: LocalCheckpoint, manifest: dict[str, Any]) -> RecordedRun:
    """Reads the input of the batches from the journal of a run, which must not be running."""
    with checkpoint.lock("a replay"), checkpoint.journal_to_read() as journal:
        return RecordedRun(checkpoint.path, manifest, _batches(journal, manifest))


def _batches(journal: Journal, manifest: Mapping[str, Any]) -> dict[int, RecordedBatch]:
    logged = journal.logged()
    before = {name: _Positions(journal.position(name), name, logged) for name in manifest["sources"]}
    return {
        batch.number: RecordedBatch(
            number=batch.number,
            now=batch.now,
            started=batch.started,
            taken={name: _taken(name, one, batch, before, manifest) for name, one in batch.taken.items()},
            waiting=frozenset(batch.waiting),
            ended=batch.ended,
            done=done,
        )
        for batch, done in logged
    }


class _Positions:
    """The positions of a source before each of the logged batches."""

    def __init__(self, last: Position, source: str, logged: list[tuple[LoggedBatch, bool]]) -> None:
        taken = [(batch.number, batch.taken[source].position) for batch, _ in logged if source in batch.taken]
        moved = {entry for _, position in taken for entry in position}
        # An entry that no logged batch moves is as it was before them.
        self._first = {entry: value for entry, value in last.items() if entry not in moved}
        self._taken = taken

    def before(self, number: int) -> Position:
        position = dict(self._first)
        for batch, moves in self._taken:
            if batch < number:
                position |= moves
        return position


def _taken(
    name: str,
    taken: PlannedBatch,
    batch: LoggedBatch,
    before: Mapping[str, _Positions],
    manifest: Mapping[str, Any],
) -> Taken:
    if name == STEPS:
        return StepTaken(taken.input)
    batches = [*_file_batches(taken.input)] if _is_of_files(manifest["sources"].get(name, {})) else []
    over = is_over(taken.position)
    if batches:
        files = tuple(TakenFile.of(cut) for one in batches for cut in one.cuts)
        return FilesTaken(files, tuple(file for one in batches for file in one.known), over)
    planned = () if only_ends(taken) else (taken,)
    return BatchTaken(planned, before[name].before(batch.number) if name in before else {}, over=over)


def _is_of_files(facts: Mapping[str, Any]) -> bool:
    return "files listed by" in facts or facts.get("kind") in ("Refreshed", "ReadingsAsFiles")


def _file_batches(given: Any) -> Iterator[FileBatch]:
    """Yields the batches of files in logged input. Rows in memory are in the manifest as files, and are none here."""
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, dict) and "cuts" in one:
            yield from_facts(FileBatch, one)
