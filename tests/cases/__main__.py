"""`python -m tests.cases FILE.yaml` plays cases: one line each, exit status 1 if any failed."""

from __future__ import annotations

from beamlike.testing.player import command
from tests.cases.case import load
from tests.cases.play import play

main = command("cases", load, play)

if __name__ == "__main__":
    main(prog_name="python -m tests.cases")
