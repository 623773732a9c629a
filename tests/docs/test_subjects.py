"""The check of commit subjects that `make lint` runs."""

from __future__ import annotations

import pytest

from tests.docs.subjects import commits, faults


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Read each list of files as a whole", []),
        ("x" * 72, []),
        ("x" * 73, ["73 characters, and 72 are allowed"]),
        ("Split tests; rename a module", ["a semicolon: make a commit for each change"]),
    ],
)
def test_faults_of_a_subject(subject: str, expected: list[str]) -> None:
    assert faults(subject) == expected


def test_a_clone_without_the_main_branch_has_no_commits_to_check() -> None:
    assert commits("no-such-branch") == []
