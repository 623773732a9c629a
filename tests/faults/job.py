"""The job: `python -m tests.faults.job FOLDER MASTER STATE` runs the pipeline on FOLDER/data and drains it.

It ends with status 0 when all input is processed. Started again on the same folder, it resumes where it was killed;
after a failed run it starts another one itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

import beamlike as bl
from tests.faults.cluster import JAVA
from tests.faults.moods import next_mood
from tests.faults.pipeline import pipeline
from tests.faults.wires import Wires

SHARDS = 2
_DEATHS = (
    "Cut: ",
    # Spark does not try a batch again that lost an executor when some tasks of its last operator were done.
    "indeterminate output",
)
"""Texts in the errors of runs that die on purpose."""
_WORKER_DIED = "Python worker exited unexpectedly"


def plan_and_runner(folder: Path, **options: object) -> tuple[bl.Pipeline, bl.SparkRunner]:
    """Returns the pipeline of that folder and its runner with `options`."""
    wires = Wires(str(folder / "wires"))
    checkpoint = str(folder / "checkpoint")

    def noted(record: object) -> None:
        wires.passes("noted", record.batch)

    runner = bl.SparkRunner(checkpoint, shards=SHARDS, drain=True, on_batch=noted, **options)
    return pipeline(folder / "data", folder / "out", wires), runner


def main(folder: Path, master: str, state: str) -> None:
    Wires(str(folder / "wires")).note_driver()
    config = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": JAVA}
    while True:
        next_mood(folder)
        plan, runner = plan_and_runner(folder, master=master, config=config, state=state)
        try:
            plan.run(runner)
            return
        except bl.CheckpointError as error:
            # It was killed when its last batch was done.
            if "was drained" not in str(error):
                raise
            return
        except (bl.RunError, StreamingQueryException) as error:
            is_tried_once = master.endswith(",1]")
            deaths = (*_DEATHS, _WORKER_DIED) if is_tried_once else _DEATHS
            if not any(death in str(error) for death in deaths):
                raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
