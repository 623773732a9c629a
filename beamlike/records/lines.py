"""The lines of a records file: the graph of a run, its batches, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, cast

import attrs

from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord, readable_pairs
from beamlike.system.seals import SUM, sealed, unsealed
from stages.facts import SPARSE, from_facts, to_facts

Ending = Literal["ended", "stopped", "failed"]
"""The way in which a run closes its records. A run that was killed does not close them."""


@attrs.frozen
class RunBegun:
    """The line of a run that begins or continues, with its graph."""

    plan: RunDescription


def _readable_changes(changed: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: readable_pairs(files) for name, files in changed.items()}


@attrs.frozen
class RunClosed:
    """The line of a run that has ended. `changed`: by source, the files that changed after its last batch."""

    closed: str
    changed: Mapping[str, Mapping[str, str]] = attrs.field(
        factory=dict, converter=_readable_changes, metadata=SPARSE
    )


class BadLine(ValueError):
    """Raised for a line that is no record of a run, or is damaged."""


Line = RunBegun | BatchRecord | RunClosed
"""The content of a line; for a batch, its record."""

PLAN_LINE: Final = b'{"plan":'
"""The beginning of the line of a graph, and so of a records file."""

BATCH_LINE: Final = b'{"batch":'
"""The beginning of the line of a batch."""

HEAD_BYTES: Final = 1 << 20
"""The number of bytes that are read to recognize a records file."""

_L = TypeVar("_L")


def line_text(line: Line) -> bytes:
    """The line as it is stored, with a checksum."""
    return json.dumps(sealed(to_facts(line)), separators=(",", ":")).encode() + b"\n"


def read_line(text: bytes) -> Line:
    """Reads a line. Raises `BadLine` for a line of another kind, or a damaged one."""
    return cast(Line, _read(cast(Any, Line), text))


def read_batch(text: bytes) -> BatchRecord:
    """Reads the record of a batch from its line. Raises `BadLine` as `read_line` does."""
    return _read(BatchRecord, text)


def _read(kind: type[_L], text: bytes) -> _L:
    try:
        return from_facts(kind, unsealed(json.loads(text)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadLine(str(error)) from error


def are_records(head: bytes) -> bool:
    """True if this is the beginning of a records file, also if its first line is damaged."""
    first, *others = head.splitlines() or [b""]
    return first.startswith(PLAN_LINE) or any(
        line.startswith((PLAN_LINE, BATCH_LINE)) and f'"{SUM}":'.encode() in line for line in others
    )
