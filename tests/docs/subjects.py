"""Checks the subjects of commits, rule 7 of docs/style.md: `python -m tests.docs.subjects [BASE]`."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import ROOT

LONGEST = 72


def faults(subject: str) -> list[str]:
    """Returns the faults of one subject."""
    found = []
    if len(subject) > LONGEST:
        found.append(f"{len(subject)} characters, and {LONGEST} are allowed")
    if ";" in subject:
        found.append("a semicolon: make a commit for each change")
    return found


def commits(base: str) -> list[str]:
    """Returns hash and subject of each commit of HEAD that `base` lacks; none without git or without `base`."""
    command = ["git", "log", "--no-merges", "--format=%h %s", f"{base}..HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()


def main() -> None:
    bases = sys.argv[1:] or ["main", "origin/main"]
    found = {commit: faults(commit.partition(" ")[2]) for base in bases for commit in commits(base)}
    sys.exit("\n".join(f"{commit}: {fault}" for commit in found for fault in found[commit]) or 0)


if __name__ == "__main__":
    main()
