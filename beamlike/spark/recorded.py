"""The batches in the logs of a run on Spark, as recorded batches. A checkpoint on this machine is read without a
session.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, cast

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.complete import OVER, is_over
from beamlike.io.files.changes import Stamp
from beamlike.io.sources import PlannedBatch
from beamlike.records.history import History
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.recorded.batches import STEPS, RecordedBatch, RecordedRun
from beamlike.runtime.recorded.taken import (
    BatchTaken,
    FilesTaken,
    NotLogged,
    SpanTaken,
    StepTaken,
    Taken,
    TakenFile,
)
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.commands import EndSources, PlayStep, read_command
from beamlike.spark.checkpoint.sourcelog import (
    NO_OFFSET,
    is_of_files,
    last_batch,
    last_entry,
    logged_files,
    offset_lines,
)
from beamlike.spark.query.listing import FilePart, KnownFiles, Lists
from beamlike.spark.query.planner import PlanLog
from beamlike.system.path_names import file_name

_UNCLEAR = (
    "the run has several sources that Spark reads, and which of Spark's offsets are theirs is not known"
)
_GONE = "the list of what the batch read is not in the checkpoint any more"


def checkpoint_at(path: str) -> Checkpoint:
    """Returns the checkpoint at a path, whose files can be read without a session."""
    return Checkpoint(cast(SparkSession, None), path)


def open_run(path: str) -> RecordedRun:
    """Reads the input of the batches from the logs of a run, which must not be running.

    Raises `CheckpointError` if there is no run, or it is in use.
    """
    checkpoint = checkpoint_at(path)
    manifest = checkpoint.manifest()
    if manifest is None:
        raise CheckpointError(f"there is no run in {path}; name the checkpoint= of a run")
    lock = checkpoint.lock("a replay")
    try:
        return RecordedRun(checkpoint.path, manifest, _Logs.of(checkpoint, manifest).batches())
    finally:
        lock.release()


@attrs.define(slots=False)
class _Logs:
    """The logs of Spark and of the driver. `offsets` has, for each batch, the version, its facts, and a line for each
    stream; the last stream is that of control commands.
    """

    checkpoint: Checkpoint
    sources: tuple[str, ...]
    streams: Mapping[int, str]
    offsets: Mapping[int, list[str]]
    unclear: tuple[str, ...] = ()
    """The sources of which the streams are not known."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> _Logs:
        names = checkpoint.files.names(checkpoint.of_spark("offsets"))
        numbers = sorted(int(name) for name in names if name.isdigit())
        offsets = {number: offset_lines(checkpoint, number) for number in numbers}
        broken = next((number for number, lines in offsets.items() if len(lines) < 3), None)
        if broken is not None:
            raise checkpoint.damaged(f"Spark's offsets/{broken} is not whole")
        last = offsets[numbers[-1]] if numbers else []
        streams = _streams(manifest, len(last) - 3)
        unclear = () if streams else tuple(_spark_sources(manifest))
        return cls(checkpoint, tuple(manifest["sources"]), streams, offsets, unclear)

    def batches(self) -> dict[int, RecordedBatch]:
        """Returns the batches whose input is known, by number."""
        done, starts = last_batch(self.checkpoint, "commits"), self._starts()
        found = dict[int, RecordedBatch]()
        for number, lines in self.offsets.items():
            # The input of a batch is the difference to the offsets of the batch before.
            before = [NO_OFFSET] * len(lines) if number == 0 else self.offsets.get(number - 1)
            if before is not None:
                found[number] = self._batch(number, before, lines, starts, done)
        return found

    def _batch(
        self, number: int, before: list[str], lines: list[str], starts: list[tuple[int, int]], done: int
    ) -> RecordedBatch:
        now = json.loads(lines[1])["batchTimestampMs"] * 1000
        # New streams are appended.
        before = [*before, *[NO_OFFSET] * (len(lines) - len(before))]
        streams = range(len(lines) - 2)
        moved = {stream: (before[stream + 2], lines[stream + 2]) for stream in streams}
        taken = dict[str, Taken]()
        for stream in streams:
            taken |= self._taken(stream, *moved[stream])
        taken |= {name: NotLogged(_UNCLEAR) for name in self.unclear}
        steps, over = self._commands(streams[-1], *moved[streams[-1]])
        if steps is not None:
            taken[STEPS] = StepTaken(steps)
        known = bisect_right(starts, (number, now)) - 1
        return RecordedBatch(
            number=number,
            now=now,
            taken=taken,
            started=starts[known][1] if known >= 0 else None,
            ended=over == {*self.sources},
            commanded=over,
            done=number <= done,
        )

    def _starts(self) -> list[tuple[int, int]]:
        """Returns the first batch of each run of the checkpoint, with its processing time (us), in order."""
        if not self.checkpoint.is_local:
            return []
        try:
            history = History.open(self.checkpoint.at(RECORDS_FILE))
        except (OSError, ValueError):
            return []
        times = {record.batch: record.processing_time for record in history.batches}
        return sorted((batch, times[batch]) for batch in history.begun)

    def _taken(self, stream: int, before: str, after: str) -> Iterator[tuple[str, Taken]]:
        """Yields the input of each source that a stream has."""
        if (files := self._files(stream, before, after)) is None:
            if (span := self._span(stream, before, after)) is not None:
                yield span
            return
        names = {file_name(name): name for name in self.sources}
        lists = dict[tuple[str, str], list[str]]()
        for path in files:
            *_, kind, folder, name = path.split("/")
            if kind in ("files", "batches") and folder in names:
                lists.setdefault((kind, names[folder]), []).append(name)
        for (kind, source), entries in lists.items():
            found = self._listed(source, entries) if kind == "files" else self._planned(source, entries)
            if found is not None:
                yield source, found

    def _files(self, stream: int, before: str, after: str) -> list[str] | None:
        """Returns the files that a file source of Spark read between two offsets; None for other sources."""
        if after == NO_OFFSET or not is_of_files(after):
            return [] if after == NO_OFFSET else None
        logged = self._logged(stream)
        first, last = last_entry(before), last_entry(after)
        return [path for number, path in logged if first < number <= last]

    def _logged(self, stream: int) -> list[tuple[int, str]]:
        """Returns the files in the log of a file source of Spark; none for other sources."""
        if not any(
            is_of_files(lines[stream + 2]) for lines in self.offsets.values() if len(lines) > stream + 2
        ):
            return []
        if stream not in self._known:
            self._known[stream] = logged_files(self.checkpoint, f"sources/{stream}")
        return self._known[stream]

    @cached_property
    def _known(self) -> dict[int, list[tuple[int, str]]]:
        return {}

    def _span(self, stream: int, before: str, after: str) -> tuple[str, Taken] | None:
        """Returns the input of a source that Spark itself reads."""
        source = self.streams.get(stream)
        if before == after or source is None:
            return None
        if before == NO_OFFSET:
            # Where the run began is in a file of the source.
            first = self.checkpoint.files.read(self.checkpoint.of_spark("sources", str(stream), "0"))
            before = (first or "").splitlines()[-1] if first else NO_OFFSET
        return source, SpanTaken(before, after)

    def _listed(self, source: str, names: list[str]) -> Taken:
        """Returns the files of lists. A list that is not merged yet names the files that were known by then."""
        lists = self._lists(source)
        taken = dict[int, FilePart]()
        known, whole = list[str](), True
        for name in sorted(names):
            first = int(name.removesuffix(".json"))
            end = next((number for number in lists.firsts if number > first), None)
            numbers = [n for n in lists.files if first <= n and (end is None or n < end)]
            if not numbers and name not in lists.known:
                return NotLogged(_GONE)
            taken |= {number: lists.files[number] for number in numbers}
            known += lists.known.get(name, ())
            whole = whole and name in lists.known
        found = [taken[number] for number in sorted(taken)]
        files = tuple(_taken_file(part) for part in found if part.file != OVER)
        return FilesTaken(files, tuple(known) if whole else None, len(files) < len(found))

    def _lists(self, source: str) -> _SourceLists:
        if source not in self._sources:
            read = [
                int(name.removesuffix(".json"))
                for stream in range(len(next(iter(self.offsets.values()))) - 2)
                for _, path in self._logged(stream)
                for *_, kind, folder, name in [path.split("/")]
                if kind == "files" and folder == file_name(source)
            ]
            self._sources[source] = _SourceLists.of(Lists(self.checkpoint, source), read)
        return self._sources[source]

    @cached_property
    def _sources(self) -> dict[str, _SourceLists]:
        return {}

    def _planned(self, source: str, names: list[str]) -> Taken | None:
        """Returns the planned batches of log entries; None if they only move the position of the source."""
        log = PlanLog(self.checkpoint, source)
        plans = [log.entry(name) for name in sorted(names)]
        known = [plan for plan in plans if plan is not None]
        if len(known) < len(plans):
            return NotLogged(_GONE)
        batches = tuple(
            PlannedBatch(plan.input, plan.position, watermark=plan.watermark)
            for plan in known
            if plan.input is not None or plan.watermark is not None
        )
        over = any(is_over(plan.position) for plan in known)
        return BatchTaken(batches, in_process=False, over=over) if batches or over else None

    def _commands(self, stream: int, before: str, after: str) -> tuple[int | None, frozenset[str]]:
        """Returns the step of test streams that a batch plays, if any, and the sources that it ends."""
        step, over = None, set[str]()
        for path in self._files(stream, before, after) or []:
            # Commands that a run has removed end no source.
            name = os.path.basename(path)
            text = self.checkpoint.files.read(self.checkpoint.at("control", name))
            match None if text is None else read_command(text)[0]:
                case PlayStep(number):
                    step = number
                case EndSources(names):
                    over |= {*names}
        return step, frozenset(over)


@attrs.frozen
class _SourceLists:
    """The files in the lists of a source, by number. `firsts` has the first number of each list, and `known` the files
    that the lists name that are not merged.
    """

    firsts: list[int]
    files: Mapping[int, FilePart]
    known: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, lists: Lists, read: Iterable[int]) -> _SourceLists:
        """Reads the lists. `read` has the first numbers of those that Spark has read, of which some are merged."""
        entries = lists.entries()
        files = {one.number: one for found in entries.values() for one in found if isinstance(one, FilePart)}
        known = {
            name: tuple(file for one in found if isinstance(one, KnownFiles) for file in one.known)
            for name, found in entries.items()
            if not name.startswith("_")
        }
        # A run that was stopped may have written lists that Spark has not read. They are not merged.
        firsts = {*read, *(int(name.removesuffix(".json")) for name in known)}
        return cls(sorted(firsts), files, known)


def _streams(manifest: Mapping[str, Any], streams: int) -> dict[int, str]:
    """Returns the source of each stream. A `SparkSource` may join several; with two of these, they are not known."""
    names, several = sorted(manifest["sources"]), _spark_sources(manifest)
    if streams == len(names):
        return dict(enumerate(names))
    if len(several) != 1:
        return {}
    place = names.index(several[0])
    return dict(enumerate([*names[:place], *several * (1 + streams - len(names)), *names[place + 1 :]]))


def _spark_sources(manifest: Mapping[str, Any]) -> list[str]:
    return [name for name, facts in sorted(manifest["sources"].items()) if facts["kind"] == "SparkSource"]


def _taken_file(part: FilePart) -> TakenFile:
    taken = TakenFile(part.file, part.pieces, stamp=Stamp.noted(part.modified, part.size))
    return taken if part.rows is None else attrs.evolve(taken, rows=part.rows)
