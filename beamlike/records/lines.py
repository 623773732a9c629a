"""The lines of a records file: the graph of a run, its batches, and how it came to its end."""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import attrs

from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord
from stages.facts import from_json, to_json

Ending = Literal["ended", "stopped", "failed"]
"""How a run can close its records; one that was killed does not."""


@attrs.frozen
class RunBegun:
    """A run begins or goes on, with this graph."""

    plan: RunDescription


@attrs.frozen
class RunClosed:
    """The run came to its end: an `Ending`."""

    closed: str


Line = RunBegun | BatchRecord | RunClosed
"""What a line says; a batch is its record."""

PLAN_LINE: Final = b'{"plan":'
"""How the line of a graph begins, and so a file of records."""

BATCH_LINE: Final = b'{"batch":'
"""How the line of a batch begins."""


def line_text(line: Line) -> bytes:
    """The line as it stands in the file."""
    return to_json(line) + b"\n"


def read_line(text: bytes) -> Line:
    """What the line says. Raises what `from_facts` does where it is none of these."""
    return cast(Line, from_json(cast(Any, Line), text))
