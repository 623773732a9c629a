"""The lines of a records file: the graph of a run, its batches, and how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, cast

import attrs

from beamlike.records.failure import Failure
from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord, readable_pairs
from beamlike.system.seals import SUM, sealed, unsealed
from stages.facts import SPARSE, from_facts, to_facts

Ending = Literal["ended", "stopped", "failed"]
"""The way in which a run closed its records. A run that was killed does not close them."""


@attrs.frozen
class RunBegun:
    """The line that a run appends when it begins or continues: its graph."""

    plan: RunDescription


def _readable_changes(changed: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: readable_pairs(files) for name, files in changed.items()}


@attrs.frozen
class RunClosed:
    """The line that a run appends when it has ended. `changed`: by source, the files that changed after its
    last batch. `failure`: why it failed.
    """

    closed: str
    changed: Mapping[str, Mapping[str, str]] = attrs.field(
        factory=dict, converter=_readable_changes, metadata=SPARSE
    )
    failure: Failure | None = attrs.field(default=None, metadata=SPARSE)


class BadLine(ValueError):
    """Raised for a line that is damaged, or is no line of a records file."""


Line = RunBegun | BatchRecord | RunClosed
"""The content of a line."""

PLAN_LINE: Final = b'{"plan":'
"""The first bytes of a line with a graph, with which each records file begins."""

BATCH_LINE: Final = b'{"batch":'
"""The first bytes of a line with the record of a batch."""

CLOSED_LINE: Final = b'{"closed":'
"""The first bytes of the line that says how a run ended."""

_PLACE: Final = "records"

HEAD_BYTES: Final = 1 << 20
"""The number of bytes that are read to recognize a records file."""

_LONG_NUMBER: Final = re.compile(rb"\d{19}")

_L = TypeVar("_L")


def line_text(line: Line) -> bytes:
    """Converts a line to bytes as they are stored, with a checksum."""
    return json.dumps(sealed(to_facts(line), _PLACE), separators=(",", ":")).encode() + b"\n"


def read_line(text: bytes) -> Line:
    """Reads a line. Raises `BadLine` if it is of another kind or damaged."""
    return cast(Line, _read(cast(Any, Line), text))


def read_batch(text: bytes) -> BatchRecord:
    """Reads the record of a batch from its line. Raises `BadLine` if it is of another kind or damaged."""
    return _read(BatchRecord, text)


def _read(kind: type[_L], text: bytes) -> _L:
    try:
        facts = unsealed(text, _PLACE)
        if _LONG_NUMBER.search(text) and not _fits(facts):
            raise BadLine("it has a number beyond 64 bits")
        return from_facts(kind, facts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadLine(str(error)) from error


def _fits(facts: Any) -> bool:
    """True if all whole numbers have 64 bits, as those that a run records."""
    if isinstance(facts, dict | list):
        return all(map(_fits, facts.values() if isinstance(facts, dict) else facts))
    return not isinstance(facts, int) or -(1 << 63) <= facts < 1 << 63


def are_records(head: bytes) -> bool:
    """True if `head` is the beginning of a records file, even if its first line is damaged."""
    first, *others = head.splitlines() or [b""]
    return first.startswith(PLAN_LINE) or any(
        line.startswith((PLAN_LINE, BATCH_LINE)) and f'"{SUM}":'.encode() in line for line in others
    )
