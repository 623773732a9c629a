"""Control commands of the driver to the tasks of a batch: a file for each in the checkpoint, recorded by Spark."""

from __future__ import annotations

import json

import attrs

from beamlike.system.seals import sealed, unsealed_json
from stages.facts import from_facts, to_facts


@attrs.frozen
class EndSources:
    """The command that ends these sources."""

    end: tuple[str, ...]


@attrs.frozen
class PlayStep:
    """The command that every test stream plays the step of this number."""

    step: int


ControlCommand = EndSources | PlayStep


def command_text(order: ControlCommand) -> str:
    """The text of a command in its file, such as `{"end": ["mobile"]}` or `{"step": 3}`, with its checksum."""
    return json.dumps(sealed(to_facts(order)))


def read_command(text: bytes | str) -> ControlCommand:
    """Reads the command in a file. Raises `NotAsWritten`."""
    facts = unsealed_json(text, "a file in beamlike/control")
    order: ControlCommand = from_facts(ControlCommand, facts)  # type: ignore[arg-type]
    return order
