"""The protocol of a run's journal is right for every order of steps, and each of its rules is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

MODEL: Final = Path(__file__).with_name("run.pml")
FAILING: Final = {
    # An epoch fences the drivers before it. Beginning a batch only if it is absent does not: a driver that takes over
    # a begun batch creates nothing, so both go on; an end that comes late makes the owner stop; and pruning lets an
    # old number be begun again.
    ("NO_EPOCHS", 2): "late<=1",
    ("NO_EPOCHS", 3): "owner!=(me+1)",
    ("NO_EPOCHS", 4): "!(anew)",
    ("NO_QUESTION_BEFORE_SINKS", 4): "!(anew)",
    ("NO_QUESTION_BEFORE_PUBLISHING", 1): "published[batch]==counted[batch]",
    ("INPUT_ANEW", 5): "given[batch]==planned",
    ("END_ALWAYS", 1): "published[batch]==counted[batch]",
    ("SAME_NAMES", 8): "==published[i]",
    ("SWEEP_BEFORE_END", 8): "==published[i]",
}
"""Failures without a rule: by the macro that takes it away and the number of the assertion, a part of its text."""


def verified(folder: Path, **macros: int) -> tuple[str | None, int]:
    """Returns the text of the assertion that fails, if any, and the number of states that were seen."""
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    given = [f"-D{name}={value}" for name, value in macros.items()]
    for command in (
        ["spin", "-a", *given, str(MODEL)],
        ["gcc", "-O1", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    told = subprocess.run(
        ["./pan", "-m100000"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    assert "max search depth too small" not in told
    failed = re.search(r"^pan:1: (.*) \(at depth", told, re.M)
    seen = re.search(r"(\d+) states, stored", told)
    assert seen is not None
    assert (failed is None) == ("errors: 0" in told)
    return (failed[1] if failed else None), int(seen[1])


@pytest.mark.parametrize(
    ("starts", "batches", "attempts"),
    [
        (2, 3, 1),
        pytest.param(2, 2, 2, marks=pytest.mark.slow),
        pytest.param(3, 3, 1, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_nothing_fails_in_any_order_of_steps(
    starts: int, batches: int, attempts: int, tmp_path: Path
) -> None:
    failed, seen = verified(tmp_path, STARTS=starts, BATCHES=batches, ATTEMPTS=attempts)
    assert failed is None
    assert seen > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("macro", "check"), FAILING)
def test_without_one_of_its_rules_something_fails(macro: str, check: int, tmp_path: Path) -> None:
    attempts = 2 if macro == "SAME_NAMES" else 1  # two names of one driver
    failed, _ = verified(tmp_path, STARTS=2, BATCHES=3, ATTEMPTS=attempts, CHECK=check, **{macro: 1})
    assert failed is not None
    assert FAILING[macro, check] in failed.replace(" ", "")
