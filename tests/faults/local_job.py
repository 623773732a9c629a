"""The job in process: `python -m tests.faults.local_job FOLDER` runs it once for each line of its input.

Each run is a process, forked from one with all modules imported, so that restarts are fast. After each it prints its
exit status: 0, the number of an error, or the negative number of a signal.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import sqlalchemy as sa  # noqa: F401  so that what is forked need not

import beamlike as bl
from tests.faults.moods import next_mood
from tests.faults.pipeline import pipeline
from tests.faults.wires import Cut, Wires


def plan_and_runner(folder: Path) -> tuple[bl.Pipeline, bl.LocalRunner]:
    """Returns the pipeline of that folder and its runner."""
    wires = Wires(str(folder / "wires"))

    def noted(record: object) -> None:
        wires.passes("noted", record.batch)

    runner = bl.LocalRunner(checkpoint=folder / "checkpoint", drain=True, on_batch=noted)
    return pipeline(folder / "data", folder / "out", wires), runner


def run(folder: Path) -> None:
    """Runs until all input is processed; after a failed run it starts another one."""
    Wires(str(folder / "wires")).note_driver()
    while True:
        next_mood(folder)
        plan, runner = plan_and_runner(folder)
        try:
            plan.run(runner)
            return
        except bl.CheckpointError as error:
            # It was killed when its last batch was done.
            if "was drained" not in str(error):
                raise
            return
        except (Cut, bl.RunError, bl.StepError) as error:
            if "Cut: " not in f"{type(error).__name__}: {error}":
                raise


def main(folder: Path) -> None:
    for _ in sys.stdin:
        if (child := os.fork()) == 0:
            status = 1
            try:
                run(folder)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
