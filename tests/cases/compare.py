"""The comparison of an outcome with the expected one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cases.case import Case, Outcome, seconds, us

BACK = "-/"
"""The beginning of a row that is taken back, in an outcome of net changes."""


def compare(case: Case, outcomes: Sequence[Outcome]) -> str | None:
    """Returns the first step with a wrong outcome: its number, the expected and the actual values; None if all fit."""
    for number, (step, outcome) in enumerate(zip(case.steps, outcomes, strict=True), start=1):
        wrong = [text for text in _wrong(step, outcome, case.in_order) if text is not None]
        if wrong:
            return f"step {number}: {'; '.join(wrong)}"
    return None


def _wrong(step: Mapping[str, Any], outcome: Outcome, in_order: bool) -> list[str | None]:
    return [
        _wrong_out(step.get("out", []), outcome, in_order),
        _wrong_letters(step.get("letters", []), outcome.letters),
        _wrong_late(step["late"], outcome.late) if "late" in step else None,
        _differ("output watermark", seconds(us(step["output_watermark"])), seconds(outcome.output_watermark))
        if "output_watermark" in step
        else None,
        _differ("live cells", step["live"], outcome.live) if "live" in step else None,
        *(
            _differ(f"kept of the {side} side", times, [seconds(time) for time in outcome.kept[side]])
            for side, times in step.get("kept", {}).items()
            if outcome.kept is not None
        ),
    ]  # fmt: skip


def _differ(what: str, expected: object, came: object) -> str | None:
    return None if expected == came else f"{what}: expected {expected}, came {came}"


def _wrong_out(expected: Sequence[Any], outcome: Outcome, in_order: bool) -> str | None:
    """Returns the wrong rows. If no expected row has a time, only values are compared."""
    wanted = [str(item) for item in expected]
    timed = not wanted or any("@" in item for item in wanted)
    came = [f"{value}@{seconds(time)}" if timed else value for value, time in outcome.out]
    # A case of net changes marks a retracted row, because its text may begin with "-", too.
    came = ["-" + text.removeprefix(BACK) if text.startswith(BACK) else text for text in came]
    if wanted == came if in_order else Counter(wanted) == Counter(came):
        return None
    return f"out: expected {wanted}, came {came}"


def _wrong_late(expected: Sequence[Any], came: Sequence[Any]) -> str | None:
    """Returns the wrong dropped rows. Those of a join are "left VALUE" or "right VALUE", or VALUE without a side."""
    wanted, found = [str(item) for item in expected], [str(item) for item in came]
    if not any(item.startswith(("left ", "right ")) for item in wanted):
        found = [item.removeprefix("left ").removeprefix("right ") for item in found]
    return _differ("late", sorted(wanted), sorted(found))


def _wrong_letters(expected: Sequence[str], came: Sequence[str]) -> str | None:
    """Returns the wrong dead letters: each expected text must be a part of the error of another row."""
    left = list(came)
    for part in expected:
        found = next((letter for letter in left if part in letter), None)
        if found is None:
            return f"letters: expected {expected}, came {list(came)}"
        left.remove(found)
    return f"letters: came {left}, too" if left else None
