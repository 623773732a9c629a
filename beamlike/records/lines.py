"""The lines of a records file: the graph of a run, its batches, and how it came to its end."""

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
"""How a run can close its records; one that was killed does not."""


@attrs.frozen
class RunBegun:
    """A run begins or goes on, with this graph."""

    plan: RunDescription


def _readable_changes(changed: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: readable_pairs(files) for name, files in changed.items()}


@attrs.frozen
class RunClosed:
    """The run came to its end: an `Ending`. `changed`: by source, the files that changed after its last batch."""

    closed: str
    changed: Mapping[str, Mapping[str, str]] = attrs.field(
        factory=dict, converter=_readable_changes, metadata=SPARSE
    )


class BadLine(ValueError):
    """A line is no record of a run, or is not what was written."""


Line = RunBegun | BatchRecord | RunClosed
"""What a line says; a batch is its record."""

PLAN_LINE: Final = b'{"plan":'
"""How the line of a graph begins, and so a file of records."""

BATCH_LINE: Final = b'{"batch":'
"""How the line of a batch begins."""

HEAD_BYTES: Final = 1 << 20
"""So much of the beginning of a file is looked at to know whether it is one of records."""

_L = TypeVar("_L")


def line_text(line: Line) -> bytes:
    """The line as it stands in the file, with a checksum."""
    return json.dumps(sealed(to_facts(line)), separators=(",", ":")).encode() + b"\n"


def read_line(text: bytes) -> Line:
    """What the line says. Raises `BadLine` where it is none of these, or is not what was written."""
    return cast(Line, _read(cast(Any, Line), text))


def read_batch(text: bytes) -> BatchRecord:
    """The record of a batch that the line has. Raises `BadLine` as `read_line` does."""
    return _read(BatchRecord, text)


def _read(kind: type[_L], text: bytes) -> _L:
    try:
        return from_facts(kind, unsealed(json.loads(text)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadLine(str(error)) from error


def are_records(head: bytes) -> bool:
    """True if this is how a file of records begins, also where its first line is damaged."""
    first, *others = head.splitlines() or [b""]
    return first.startswith(PLAN_LINE) or any(
        line.startswith((PLAN_LINE, BATCH_LINE)) and f'"{SUM}":'.encode() in line for line in others
    )
