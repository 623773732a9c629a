"""Files of cases: steps with inputs and expected outputs. Times are seconds in a file, microseconds in an outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

ABOUT = frozenset({"id", "source", "note", "kind", "in_order", "error", "steps"})
"""Keys of every kind of case."""


class Unsupported(Exception):
    """Raised for a case that needs a missing feature."""


@attrs.frozen
class Case:
    """A case. `given` has the keys of its kind; attributes that only some steps name are compared only there.

    `error` is a part of the message with which the case must be refused or fail. `in_order` also compares the order of
    rows.
    """

    id: str
    kind: str
    given: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    in_order: bool = False
    error: str | None = None

    def require(self, keys: frozenset[str], of_step: frozenset[str]) -> None:
        """Raises `Unsupported` for an unknown key of the case or a step."""
        for what, given, known in [
            ("a case", self.given, keys),
            *(("a step", step, of_step) for step in self.steps),
        ]:
            for key in sorted(set(given) - known):
                raise Unsupported(f"{what} of kind {self.kind!r} has no {key!r}")

    @property
    def ends(self) -> bool:
        """True if some step has the end of input."""
        return any("end" in (step.get("watermark"), step.get("side_watermark")) for step in self.steps)


@attrs.frozen
class Outcome:
    """The outcome of a step: (value, time) of each row, dropped values, errors, output watermark and live rows.

    `kept` has the times of the rows that a join keeps, by side, or None if they were not examined.
    """

    out: Sequence[tuple[str, int]]
    late: Sequence[Any]
    letters: Sequence[str]
    output_watermark: int
    live: int
    kept: Mapping[str, Sequence[int]] | None = None


def load(path: str | Path) -> list[Case]:
    """Returns the cases of a file."""
    with open(path, encoding="utf-8") as file:
        read = yaml.safe_load(file)
    cases = [_case(item) for item in read["cases"]]
    names = Counter(case.id for case in cases)
    assert max(names.values(), default=1) == 1, f"{path}: two cases have the id {names.most_common(1)[0][0]}"
    return cases


def _case(item: Mapping[str, Any]) -> Case:
    given = {key: value for key, value in item.items() if key not in ABOUT}
    steps = item.get("steps", [])
    return Case(item["id"], item["kind"], given, steps, item.get("in_order", False), item.get("error"))


def us(time: float | str) -> int:
    """Returns a time of a file in microseconds."""
    if time in ("start", -math.inf):
        return MIN_TIME
    return MAX_TIME if time in ("end", math.inf) else round(float(time) * 1_000_000)


def seconds(time: int) -> float | str:
    """Returns a time in the notation of files."""
    if time <= MIN_TIME or time >= GLOBAL_WINDOW_END - 1:
        return "start" if time <= MIN_TIME else "end"
    return time // 1_000_000 if time % 1_000_000 == 0 else time / 1_000_000
