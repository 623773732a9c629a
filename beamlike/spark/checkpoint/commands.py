"""Control commands from the driver to the tasks of a batch. Each is a file in the checkpoint, which Spark
logs as input.
"""

from __future__ import annotations

import json

import attrs

from beamlike.system.seals import sealed, unsealed_json
from stages.facts import from_facts, to_facts


@attrs.frozen
class EndSources:
    """A command that ends these sources."""

    end: tuple[str, ...]


@attrs.frozen
class PlayStep:
    """A command for every test stream to play the step with this number."""

    step: int


ControlCommand = EndSources | PlayStep


def command_text(order: ControlCommand) -> str:
    """Returns the content of a command's file, such as `{"end": ["mobile"]}` or `{"step": 3}`, with a checksum."""
    return json.dumps(sealed(to_facts(order)))


def read_command(text: bytes | str) -> ControlCommand:
    """Parses a command, the content of its file. Raises `NotAsWritten` if the content is damaged."""
    facts = unsealed_json(text, "a file in beamlike/control")
    order: ControlCommand = from_facts(ControlCommand, facts)  # type: ignore[arg-type]
    return order
