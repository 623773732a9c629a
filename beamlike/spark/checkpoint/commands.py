"""Control commands from the driver to the tasks of a batch. Each is a file in the checkpoint, which Spark
logs as input.
"""

from __future__ import annotations

import json

import attrs

from beamlike.system.seals import placed, sealed
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


def command_text(order: ControlCommand, name: str) -> str:
    """Returns the content of the file with this name, such as `{"end": ["mobile"]}` or `{"step": 3}`, sealed."""
    return json.dumps(sealed(to_facts(order), f"control/{name}"))


def read_command(text: bytes | str) -> tuple[ControlCommand, str]:
    """Parses a command, the content of its file, and returns it with its place. Raises `NotAsWritten` if the content is
    damaged.
    """
    place, facts = placed(text, "a file in beamlike/control")
    order: ControlCommand = from_facts(ControlCommand, facts)  # type: ignore[arg-type]
    return order, place
