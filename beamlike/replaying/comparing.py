"""Compares a batch that was played again with what the run recorded and wrote."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import polars as pl

from beamlike.io.base import Part
from beamlike.io.files import part_files
from beamlike.io.files.files import Files
from beamlike.observe.words import moment
from beamlike.plan.manifest import Runner
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord
from beamlike.runtime.recorded.batches import RecordedBatch, RecordedRun
from beamlike.system.path_names import is_remote

_SOURCE: Final = ("watermark", "read", "elements", "dead_letters")
_STAGE: Final = (
    "input",
    "output",
    "elements",
    "panes",
    "dropped",
    "live",
    "timers",
    "fired",
    "emitted",
    "pending",
)
_PLAIN: Final = (".jsonl", ".csv", ".parquet")
_TIMES: Final = ("watermark", "input", "output")


@attrs.frozen
class Comparison:
    """A comparison of a replayed batch with the run: the `differences`, and what was `compared`, each as a sentence.

    `reasons` has the parts of the pipeline and of the checkpoint that may cause differences.
    """

    differences: tuple[str, ...]
    compared: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yields the comparison as text."""
        yield from self.compared
        if not self.differences:
            yield "no difference"
            return
        yield from self.differences
        for reason in self.reasons:
            yield f"it may differ, since {reason}"


def compare(
    run: RecordedRun,
    plan: Plan,
    batch: RecordedBatch,
    record: BatchRecord,
    *,
    before: BatchRecord | None,
    written: Mapping[str, pl.DataFrame],
) -> Comparison:
    """Compares the record and the rows of a replayed batch with those of the run.

    `before` is the record that the run made; None if it is not stored. `written` has the rows for each sink.
    """
    differences, compared = list[str](), list[str]()
    if before is None or before.batches != 1:
        compared.append(
            f"the run has no record of batch {batch.number}: counts and watermarks are not compared"
        )
    else:
        compared.append("counts and watermarks: those of the record")
        differences += _of_records(before, record)
    for name, sink in plan.sinks.items():
        rows = written.get(name, pl.DataFrame(schema=sink.schema).clear())
        what, found = _of_sink(run, name, sink.sink, batch, rows)
        compared.append(f"sink {name!r}: {what}")
        differences += found
    return Comparison(tuple(differences), tuple(compared), tuple(_reasons(run, plan, batch)))


def compare_rows(
    written: Mapping[str, pl.DataFrame], expected: Mapping[str, pl.DataFrame], notes: Iterable[str]
) -> Comparison:
    """Compares the rows for sinks with those in a recording, in their order. `notes` are about the recording."""
    differences = list[str]()
    for name, rows in written.items():
        there = expected.get(name, rows.clear())
        if not rows.equals(there):
            before, now = (Counter(map(str, frame.rows(named=True))) for frame in (there, rows))
            differences += [*_lines(name, before, now)] or [f"sink {name!r}: the same rows in another order"]
    told = ", ".join(f"{len(rows)} of sink {name!r}" for name, rows in written.items())
    compared = (*notes, f"rows: {told}" if told else "no rows to compare")
    why = ("functions in Python run again", "another version of beamlike or polars may compute other digits")
    return Comparison(tuple(differences), compared, why)


def _of_records(before: BatchRecord, now: BatchRecord) -> Iterator[str]:
    for name, source in before.sources.items():
        yield from _of_facts(f"source {name!r}", _SOURCE, source, now.sources.get(name))
    for name, stage in before.stages.items():
        yield from _of_facts(f"stage {name!r}", _STAGE, stage, now.stages.get(name))
    for name in sorted({*before.sinks, *now.sinks}):
        yield from _difference(f"sink {name!r}: rows", before.sinks.get(name, 0), now.sinks.get(name, 0))
    for name in sorted({*before.dead_letters, *now.dead_letters}):
        there, here = before.dead_letters.get(name, 0), now.dead_letters.get(name, 0)
        yield from _difference(f"step {name!r}: dead letters", there, here)


def _of_facts(what: str, facts: Iterable[str], before: Any, now: Any) -> Iterator[str]:
    for fact in facts:
        there, here = getattr(before, fact), getattr(now, fact, None)
        if there is not None:
            yield from _difference(f"{what}: {fact}", there, here, time=fact in _TIMES)


def _difference(what: str, before: Any, now: Any, *, time: bool = False) -> Iterator[str]:
    if before != now:
        there, here = (moment(one) if time and one is not None else one for one in (before, now))
        yield f"{what}: {there} in the run, {here} in the replay"


def _of_sink(
    run: RecordedRun, name: str, sink: Any, batch: RecordedBatch, rows: pl.DataFrame
) -> tuple[str, list[str]]:
    """Returns what was compared with a sink, and the differences."""
    kind = type(sink).__name__
    if not isinstance(sink, Files) or is_remote(sink.folder):
        return f"{kind} cannot be compared by its rows, only by their number", []
    if not batch.done:
        return f"batch {batch.number} is not done, so {sink.folder} has nothing of it", []
    if run.manifest["runner"] != Runner.LOCAL and Path(f"x.{sink.extension}").suffix not in _PLAIN:
        return f"files with the extension {sink.extension} are compared by the number of their rows only", []
    files = part_files.of_batch(sink.folder, run.manifest["run"], sink.extension, batch.number)
    if not files and len(rows):
        return f"{sink.folder} has no file of batch {batch.number}, though it has rows: not compared", []
    with tempfile.TemporaryDirectory(prefix="beamlike-replay-") as folder:
        own = attrs.evolve(sink, path=folder)
        own.write(rows, Part(run.manifest["run"], batch.number, sink=name))
        mine = part_files.of_batch(folder, run.manifest["run"], sink.extension, batch.number)
        if run.manifest["runner"] == Runner.LOCAL:
            return _bytes(sink.folder, files, folder, mine, name)
        there, here = (_rows(folder, names) for folder, names in ((sink.folder, files), (folder, mine)))
    return f"{sum(there.values())} rows in {sink.folder}", [*_lines(name, there, here)]


def _bytes(there: str, files: list[str], here: str, mine: list[str], name: str) -> tuple[str, list[str]]:
    size = sum(os.path.getsize(os.path.join(there, file)) for file in files)
    differences = []
    for file in sorted({*files, *mine}):
        if file not in files:
            differences.append(f"sink {name!r}: the replay writes {file}, which the run did not")
        elif file not in mine:
            differences.append(f"sink {name!r}: the run wrote {file}, which the replay does not")
        elif Path(there, file).read_bytes() != Path(here, file).read_bytes():
            differences += _lines_of_files(name, Path(there, file), Path(here, file))
    return f"{size:,} bytes in {there}, byte for byte", differences


def _lines_of_files(name: str, there: Path, here: Path) -> Iterator[str]:
    before, now = (_content(path) for path in (there, here))
    found = [*_lines(name, before, now)]
    yield from found or [f"sink {name!r}: {there.name} has the same rows in another order or form"]


def _content(path: Path) -> Counter[str]:
    if path.suffix == ".parquet":
        return Counter(map(str, pl.read_parquet(path).rows(named=True)))
    lines = path.read_text(errors="replace").splitlines()
    # A file of CSV begins with the names of its columns.
    return Counter(lines[1:] if path.suffix == ".csv" else lines)


def _rows(folder: str, names: Iterable[str]) -> Counter[str]:
    return sum((_content(Path(folder, name)) for name in names), Counter[str]())


_SHOWN: Final = 5


def _lines(name: str, before: Counter[str], now: Counter[str]) -> Iterator[str]:
    for what, found in (("only in the run", before - now), ("only in the replay", now - before)):
        lines = sorted(found.elements())
        for line in lines[:_SHOWN]:
            yield f"sink {name!r}: {what}: {line}"
        if len(lines) > _SHOWN:
            yield f"sink {name!r}: {what}: {len(lines) - _SHOWN} more"


def _reasons(run: RecordedRun, plan: Plan, batch: RecordedBatch) -> Iterator[str]:
    """Yields the reasons for which a replay may differ from the run."""
    python = [name for name, one in plan.producers.items() if one.python]
    if python:
        yield (
            f"functions in Python run again at or after {', '.join(map(repr, python))}: a service, a clock or a random "
            "number that they use gives other results"
        )
    idle = [name for name, one in plan.sources.items() if one.watermark.idle_after is not None]
    if idle and run.manifest["runner"] == Runner.SPARK:
        yield (
            f"the start of the run is known only from its first batch, and {', '.join(map(repr, idle))} become idle "
            "by the time since then"
        )
    if run.manifest["shards"] > 1:
        yield (
            f"the run had {run.manifest['shards']} shards, and the replay has one: results that depend on the order "
            "of arrival of rows from several files or stages may differ"
        )
