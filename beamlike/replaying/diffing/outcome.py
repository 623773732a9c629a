"""The outcome of a version of a pipeline over recorded input: the rows at each point of its plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
import polars as pl

from stages.facts import from_facts, to_facts

_FILE: Final = "outcome.json"


@attrs.frozen(eq=False)
class Point:
    """The rows that a producer sent to a consumer, or, with an empty `consumer`, the panes that a stage emitted.

    `role` is the input of the consumer. `identity` has the columns that identify a row, if they exist.
    """

    producer: str
    consumer: str
    role: str
    rows: pl.DataFrame
    identity: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, str, str]:
        """The producer, consumer and role."""
        return self.producer, self.consumer, self.role


@attrs.frozen
class Effect:
    """The effect of a version on the state of a stage in the checkpoint: "goes on", "begins anew", "gone" or "refused".

    An empty `stage` means the whole run. `why` has the reason of a refusal, and the remedy.
    """

    stage: str
    effect: str
    why: str = ""


@attrs.frozen(eq=False)
class Outcome:
    """The rows at each point of a plan, in topological order, and the effects of the plan on the state of the run.

    `notes` has sentences about the input. `facts` describes each stage and the routes to it, as texts.
    """

    points: Sequence[Point]
    effects: Sequence[Effect]
    notes: Sequence[str]
    facts: Mapping[str, Mapping[str, Any]]

    def save(self, folder: str) -> None:
        """Writes the outcome to files in a folder."""
        for number, point in enumerate(self.points):
            point.rows.write_ipc(Path(folder, f"{number}.arrow"))
        points = [[*point.address, list(point.identity)] for point in self.points]
        facts = {"points": points, "effects": to_facts([*self.effects], list[Effect])}
        facts |= {"notes": list(self.notes), "facts": self.facts}
        Path(folder, _FILE).write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: str) -> Self:
        """Reads the outcome that `save` wrote."""
        found = json.loads(Path(folder, _FILE).read_text(encoding="utf-8"))
        points = [
            Point(
                producer,
                consumer,
                role,
                pl.read_ipc(Path(folder, f"{number}.arrow").read_bytes()),
                tuple(identity),
            )
            for number, (producer, consumer, role, identity) in enumerate(found["points"])
        ]
        return cls(points, from_facts(list[Effect], found["effects"]), found["notes"], found["facts"])
