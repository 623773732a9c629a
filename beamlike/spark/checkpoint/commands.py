"""Orders of the driver to the tasks of a batch: a file of each in the checkpoint, which Spark records and replays."""

from __future__ import annotations

import json

import attrs

from beamlike.system.seals import sealed, unsealed
from stages.facts import from_facts, to_facts


@attrs.frozen
class EndSources:
    """These sources are at their end."""

    end: tuple[str, ...]


@attrs.frozen
class PlayStep:
    """Every test stream plays the step of this number."""

    step: int


ControlCommand = EndSources | PlayStep


def command_text(order: ControlCommand) -> str:
    """As it is in its file, such as `{"end": ["mobile"]}` or `{"step": 3}`, with its checksum."""
    return json.dumps(sealed(to_facts(order)))


def read_command(text: str) -> ControlCommand:
    """The order that a file has. Raises `NotAsWritten`."""
    facts = unsealed(json.loads(text), "a file in beamlike/control")
    order: ControlCommand = from_facts(ControlCommand, facts)  # type: ignore[arg-type]
    return order
