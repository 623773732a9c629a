"""Recordings: one file with batches of a run, from which another machine replays them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text
from beamlike.plan.model import Plan
from beamlike.plan.tables import with_tables
from beamlike.records.model import BatchRecord
from beamlike.replaying.chunks import chunk_of, frame_bytes, frame_of
from beamlike.replaying.playing import Player
from beamlike.replaying.scratch import fitted_to
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.kept_inputs import INPUTS
from beamlike.runtime.loop.batch_input import BatchInput, read_whole
from beamlike.runtime.recorded.batches import RecordedBatch
from beamlike.runtime.run.side_tables import at_hand
from beamlike.runtime.savepoint.trust import require_trusted
from beamlike.system import durable
from beamlike.system.seals import sealed_bytes, unsealed_bytes
from stages.facts import from_facts, to_facts
from stages.progress.reports import Report
from stages.progress.splits import SourceSummary
from stages.state.store import DictStore
from windowing.time import MIN_TIME

VERSION: Final = 1
_FACTS: Final = "recording.json"
_PLACE: Final = "recording"
_HEAD: Final = b'{"content":'
"""The first bytes of a recording, which are those of its seal."""


@attrs.frozen
class BatchFacts:
    """A batch in a recording: the facts of the run about it, and what each source sent, as `chunk_facts` has it.

    `summaries` has the event times that each source reported, and `reports` the watermarks of each stage, with all rows
    of the run: they are used if the recording has the rows of one key. `rows` has the frame of each sink.
    """

    number: int
    now: int
    started: int | None
    waiting: list[str]
    ended: bool
    over: list[str]
    chunks: dict[str, Any]
    summaries: dict[str, dict[str, Any]]
    reports: dict[str, Any]
    record: dict[str, Any]
    rows: dict[str, str]

    @property
    def batch(self) -> RecordedBatch:
        """The batch, whose input is in the recording."""
        return RecordedBatch(
            number=self.number,
            now=self.now,
            taken={},
            started=self.started,
            waiting=frozenset(self.waiting),
            ended=self.ended,
            commanded=frozenset(self.over),
        )


@attrs.define(eq=False)
class Recording:
    """Batches of a run with their input, the state before the first of them, and the rows that they gave to sinks.

    `origin` is the checkpoint. `key` has the values of the key whose rows the recording has; empty for all rows. The
    sinks in `sinks` have all their rows. `notes` has sentences about what is left out.
    """

    origin: str
    manifest: dict[str, Any]
    key: dict[str, Any]
    sinks: list[str]
    notes: list[str]
    batches: list[BatchFacts] = attrs.field(factory=list)
    state: dict[tuple[str, str], bytes] = attrs.field(factory=dict, repr=False)
    tables: dict[str, str] = attrs.field(factory=dict)
    last: dict[str, Any] | None = None
    frames: dict[str, pl.DataFrame] = attrs.field(factory=dict, repr=False)

    _names: Iterator[int] = attrs.field(factory=count, init=False, repr=False)

    def keep(self, frame: pl.DataFrame) -> str:
        """Adds a frame, and returns its name."""
        name = f"{next(self._names):06d}"
        self.frames[name] = frame
        return name

    @property
    def numbers(self) -> list[int]:
        """The numbers of the batches."""
        return [one.number for one in self.batches]

    def facts(self, number: int) -> BatchFacts:
        """Returns a batch. Raises `CheckpointError` if the recording does not have it."""
        for one in self.batches:
            if one.number == number:
                return one
        first, last = self.numbers[0], self.numbers[-1]
        raise CheckpointError(f"the recording has no batch {number}: it has batches {first} to {last}")

    def plan(self, plan: Plan) -> Plan:
        """Returns the plan with the names of the run. Raises `CheckpointError` if it does not fit the run."""
        fitting = fitted_to(self.manifest, f"the recording of {self.origin}", plan, self.origin, 0)
        return with_tables(fitting, at_hand({name: self.frames[file] for name, file in self.tables.items()}))

    def require_trusted(self, plan: Plan, trust: bool) -> None:
        """Raises `CheckpointError` if the plan of `plan` would unpickle objects of the recording's state."""
        stages = {stage for stage, key in self.state if key != INPUTS}
        require_trusted(plan, f"the recording of {self.origin}", trust, stages)

    def player(self, plan: Plan) -> Player:
        """Returns a player of the recording, for a plan of `plan`."""
        last = None if self.last is None else from_facts(BatchRecord, self.last)
        return Player.of(
            plan,
            self.manifest,
            DictStore(dict(self.state)),
            last,
            inputs=lambda batch: self._input(plan, self.facts(batch.number)),
            reports=self._reports if self.key else None,
        )

    def _reports(self, batch: RecordedBatch) -> dict[str, Report]:
        reports = self.facts(batch.number).reports
        return {name: from_facts(Report, facts) for name, facts in reports.items()}

    def _input(self, plan: Plan, facts: BatchFacts) -> BatchInput:
        ingested = {
            name: ingest(plan.sources[name], chunk_of(chunk, self.frames.__getitem__), facts.now)
            for name, chunk in facts.chunks.items()
        }
        if self.key:
            # The event times of other keys move the watermark, too.
            ingested = {
                name: attrs.evolve(got, summary=_summary(facts.summaries.get(name, {})))
                for name, got in ingested.items()
            }
        return BatchInput(
            ingested,
            dict.fromkeys(plan.sources, facts.now),
            facts.now,
            ended=facts.ended,
            waiting=frozenset(facts.waiting),
            started=MIN_TIME if facts.started is None else facts.started,
            over=read_whole(plan) | frozenset(facts.over),
        )

    def expected(self, number: int) -> Mapping[str, pl.DataFrame]:
        """Returns the rows of each sink in a batch, without sinks that had none."""
        return {name: self.frames[file] for name, file in self.facts(number).rows.items()}

    def write(self, file: str | os.PathLike[str]) -> None:
        """Writes the recording to a file, which must not exist. If it cannot be written, no file is left."""
        facts = {
            "version": VERSION,
            "origin": self.origin,
            "manifest": self.manifest,
            "key": {name: _as_json(value) for name, value in self.key.items()},
            "sinks": self.sinks,
            "notes": self.notes,
            "batches": [to_facts(one) for one in self.batches],
            "state": [[stage, key, f"state/{number}"] for number, (stage, key) in enumerate(self.state)],
            "tables": self.tables,
            "last": self.last,
        }
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr(_FACTS, json.dumps(facts))
            for number, value in enumerate(self.state.values()):
                target.writestr(f"state/{number}", value)
            for name, frame in self.frames.items():
                target.writestr(f"frames/{name}.arrow", frame_bytes(frame))
        path = path_text(file)
        if os.path.exists(path):
            raise FileExistsError(f"{path} exists already")
        durable.write(path, sealed_bytes(content.getvalue(), _PLACE))


def _as_json(value: Any) -> Any:
    """Returns the value of a key as it can be in JSON; others as text, which a replay only shows."""
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _summary(facts: SourceSummary) -> SourceSummary:
    return from_facts(SourceSummary, facts)


def is_recording(path: str | os.PathLike[str]) -> bool:
    """True if the path is a file that can be a recording, also a damaged one."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(len(_HEAD))
    return head == _HEAD or zipfile.is_zipfile(path)


def open_recording(file: str | os.PathLike[str]) -> Recording:
    """Reads a recording. Raises `CheckpointError` if the file is none, or is damaged."""
    path = path_text(file)
    try:
        content = unsealed_bytes(Path(path).read_bytes(), _PLACE, path)
        # What was written can be parsed, unless another version wrote it.
        with zipfile.ZipFile(io.BytesIO(content)) as source:
            facts = json.loads(source.read(_FACTS))
            if facts["version"] != VERSION:
                raise CheckpointError(
                    f"the recording {path} is of version {facts['version']}, and this version of beamlike reads "
                    f"{VERSION}"
                )
            frames = {
                os.path.basename(name).removesuffix(".arrow"): frame_of(source.read(name))
                for name in source.namelist()
                if name.startswith("frames/")
            }
            return Recording(
                facts["origin"],
                facts["manifest"],
                facts["key"],
                facts["sinks"],
                facts["notes"],
                [from_facts(BatchFacts, one) for one in facts["batches"]],
                {(stage, key): source.read(name) for stage, key, name in facts["state"]},
                facts["tables"],
                facts["last"],
                frames,
            )
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} is no recording, or is damaged: {error}") from None
