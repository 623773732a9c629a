"""The local runner. It runs a plan in this process, for tests, notebooks, and data that fit on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import attrs

from beamlike.io.files.paths import path_text_if_any
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.local.opening import check_plan, open_local_run
from beamlike.local.run import LocalRun
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.records.model import BatchRecord
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.live_run import LiveRun
from beamlike.runtime.run.options import AVAILABLE_NOW, Trigger, is_run_id, is_trigger
from beamlike.runtime.run.readings import with_readings_as_files
from beamlike.runtime.run.run_records import recorded_start
from beamlike.runtime.run.side_tables import with_tables_read
from beamlike.runtime.run.sinks import with_sinks_of_run
from beamlike.runtime.run.telemetry import Telemetry, telemetry_of
from beamlike.system.fields import whole_number
from beamlike.system.signals import signals


@attrs.frozen
class LocalRunner:
    """Runs a pipeline in this process. A batch reads one chunk of every source that has not ended.

    A run without a checkpoint reads to the end of its input, closes all windows there, and stores nothing. A run with a
    checkpoint can be continued, as on Spark. Test streams are played a step a batch, and processing time is theirs.

    Args:
        chunk_rows: The approximate number of rows of a chunk, unless the source sets a number of files.
        records: A file for the records of all batches, for `beamlike why`, `watch` and `report`. Only without
            `checkpoint`, since a checkpoint has the records in it.
        on_batch: A function that is called with the record of each batch.
        clock: A function that returns the processing time in microseconds; by default the time of this machine.
        run_id: The name of the run for its sinks, by default the name of the pipeline. A run replaces the files of the
            last run of its name, and is refused while another one that writes to the same target is running. Only
            without `checkpoint`, since a checkpoint has an id of its own.
        checkpoint: A folder on this machine, from which a later run with the same checkpoint continues, however the
            last one ended.
        trigger: "available_now" processes the available input and ends. With an interval ("1 second"), the run
            continues until it is stopped, and looks for new input that often. Needs `checkpoint`.
        drain: If True, closes all windows when no input is left, which finishes the checkpoint. Needs `checkpoint`.
        quiet: If True, neither a terminal nor a notebook shows progress.
        continue_as: For an older copy of a checkpoint, the id of the run that continues from it. Rows of later batches
            are removed from sinks that can do that; the log reports which rows are doubled in others.
        telemetry: `bl.observe.OpenTelemetry()` or `bl.observe.OpenLineage()`, or a list of both. Each exports the run
            in a thread of its own; if its collector fails, the run continues without.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> p.run(bl.LocalRunner(records="plays.jsonl", on_batch=lambda record: print(record.batch, record.sinks)))
        0 {'out': 1}
        1 {'out': 1}
        2 {'out': 1}
        3 {}
        <LocalRun of 'scores': 4 batches>
        >>> p.run(bl.LocalRunner(checkpoint="checkpoint"))
        <LiveRun of 'scores': 3 batches>
        >>> p.run(bl.LocalRunner(checkpoint="checkpoint"))  # nothing new has come
        <LiveRun of 'scores': 0 batches>
    """

    chunk_rows: int = attrs.field(default=CHUNK_ROWS, validator=whole_number(1))
    records: str | os.PathLike[str] | None = None
    on_batch: Callable[[BatchRecord], None] | None = None
    clock: Callable[[], int] = attrs.field(default=lambda: time.time_ns() // 1000, repr=False)
    run_id: str | None = attrs.field(default=None, validator=is_run_id)
    checkpoint: str | None = attrs.field(default=None, converter=path_text_if_any)
    trigger: Trigger = attrs.field(default=AVAILABLE_NOW, validator=is_trigger)
    drain: bool = False
    quiet: bool = False
    continue_as: str | None = attrs.field(default=None, kw_only=True, validator=is_run_id)
    telemetry: tuple[Telemetry, ...] = attrs.field(default=(), kw_only=True, converter=telemetry_of)

    def __attrs_post_init__(self) -> None:
        if self.checkpoint is None:
            if self.continue_as is not None:
                raise ValueError("LocalRunner: continue_as= needs checkpoint=, whose run continues")
            if self.trigger != AVAILABLE_NOW or self.drain:
                raise ValueError(
                    "LocalRunner: trigger= and drain= need checkpoint=: a run without one goes to the end of its input "
                    "and closes all windows there"
                )
            return
        LocalCheckpoint.of(self.checkpoint)
        if self.records is not None:
            raise ValueError(
                "LocalRunner: records= is for runs without a checkpoint, and a checkpoint has them in it"
            )
        if self.run_id is not None:
            raise ValueError(
                "LocalRunner: run_id= is for runs without a checkpoint, and a checkpoint has an id of its own"
            )
        if self.drain and self.trigger != AVAILABLE_NOW:
            raise ValueError("LocalRunner: drain=True needs trigger='available_now': an interval has no end")

    def run(self, plan: Plan | Planned) -> LocalRun | LiveRun:
        """Runs a plan to the end of its input, or with an interval until it is stopped. Users call `Pipeline.run`.

        Ctrl-C ends a run after the current batch. Without a checkpoint, finished batches are kept, open windows emit
        nothing, and `KeyboardInterrupt` is raised, whose `run` has the records; a second Ctrl-C abandons the current
        batch, and the files of an earlier run stay as they were. With a checkpoint, Ctrl-C or SIGTERM ends the run,
        which is returned, and the next run continues; after a second signal the next run repeats the last batch.

        Args:
            plan: A plan or a pipeline.

        Returns:
            The run: a `LiveRun` with a checkpoint, a `LocalRun` without one.

        Raises:
            RunError: The run fails, for example because of a source or sink. Errors of a user's function are raised
                as they are, and so are the errors of `start`.

        Example, with the `plays` of `bl.Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> run = bl.LocalRunner().run(p.plan())
            >>> len(run.batches)
            4
        """
        planned = plan_of(plan, "LocalRunner.run")
        if self.checkpoint is None:
            run = LocalRun(with_sinks_of_run(with_tables_read(planned, self.clock())), self)
            run.go()
            return run
        live = self._begun(planned)
        try:
            with signals(lambda: live.ask_to_stop("a second signal abandons it")):
                live.go()
        except KeyboardInterrupt:
            pass  # The next run repeats the batch.
        return live

    def start(self, plan: Plan | Planned) -> LiveRun:
        """Starts a run with a checkpoint in a thread of its own, and returns once the tables of its lookups are read.

        Args:
            plan: A plan or a pipeline.

        Raises:
            CheckpointError: The checkpoint belongs to another plan, or is in use.
            PlanError: A source cannot be read on from a position.

        Example, with the `plays` of `bl.Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> run = bl.LocalRunner(checkpoint="checkpoint", trigger="1 second").start(p.plan())
            >>> run.stop()
        """
        if self.checkpoint is None:
            raise ValueError("LocalRunner: a run that is started needs checkpoint=")
        live = self._begun(plan_of(plan, "LocalRunner.start"))
        live.go_in_thread()
        return live

    def _begun(self, plan: Plan) -> LiveRun:
        assert self.checkpoint is not None
        checkpoint = LocalCheckpoint.of(self.checkpoint)
        with recorded_start(self.checkpoint, plan):
            plan = with_readings_as_files(with_sinks_of_run(plan), checkpoint.at("readings"), self.clock)
            check_plan(plan, checkpoint, draining=self.drain)
            return LiveRun.begin(plan, self, checkpoint, partial(open_local_run, plan, self, checkpoint))
