"""The local runner: it runs a plan in this process, for tests, notebooks, and data for one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import attrs

from beamlike.io.files.paths import path_text
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.local.checkpoint import LocalCheckpoint
from beamlike.local.live_run import LiveRun
from beamlike.local.run import LocalRun
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.records.model import BatchRecord
from beamlike.runtime.options import AVAILABLE_NOW, Trigger, is_run_id, is_trigger
from beamlike.runtime.side_tables import with_tables_read
from beamlike.runtime.sinks import with_sinks_of_run
from beamlike.system.fields import whole_number
from beamlike.system.signals import signals


@attrs.frozen
class LocalRunner:
    """Runs a pipeline in process. A batch takes one chunk of every source that is not at its end.

    Of test streams it takes one step each; processing time is then theirs, and otherwise that of this machine.

    `chunk_rows`: about how many rows a chunk has, where the source does not say how many files.
    `records`: a file for the records of all batches, for `beamlike why`, `watch` and `report`.
    `on_batch` is called with the record of each batch.
    `clock` gives the processing time in microseconds; by default it is this machine's.
    `quiet`: a terminal shows no progress.
    `run_id`: the name under which sinks know the run, by default that of the pipeline. A run replaces the files of
    the last one of its name, and is refused while one goes on that writes to the same place.

    Without a checkpoint a run goes to the end of its input, closes all windows there, and keeps nothing. With one it
    can be continued, as on Spark:

    `checkpoint`: a folder of this machine; a run with the same checkpoint goes on where the last one was, however that
    ended. Records are in it, and each checkpoint has an id under which sinks know its runs.
    `trigger`: "available_now" processes what is there and stops; an interval ("1 second") goes on until it is stopped,
    and looks for new input that often.
    `drain`: when no new input is left, closes all windows; the checkpoint is finished with that.
    `continue_as`: for an older copy of a checkpoint, the id of the run that continues from it. Rows of later batches
    are removed from sinks that can do that; the log tells which rows are doubled in others.

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
    checkpoint: str | None = attrs.field(default=None, converter=attrs.converters.optional(path_text))
    trigger: Trigger = attrs.field(default=AVAILABLE_NOW, validator=is_trigger)
    drain: bool = False
    quiet: bool = False
    continue_as: str | None = attrs.field(default=None, kw_only=True, validator=is_run_id)

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
            raise ValueError("LocalRunner: records= is for runs without a checkpoint, which has them in it")
        if self.run_id is not None:
            raise ValueError(
                "LocalRunner: run_id= is for runs without a checkpoint, which has an id of its own"
            )
        if self.drain and self.trigger != AVAILABLE_NOW:
            raise ValueError("LocalRunner: drain=True needs trigger='available_now': an interval has no end")

    def run(self, plan: Plan | Planned) -> LocalRun | LiveRun:
        """Runs a plan, or that of a pipeline, to the end of its input, or with an interval until it is stopped.

        Users call `Pipeline.run`.

        Ctrl-C ends it after the batch in hand. Without a checkpoint, what was done so far is kept, windows that are
        open emit nothing, and `KeyboardInterrupt` is raised, whose `run` has the records; a second one gives that batch
        up, and files that an earlier run has written stay as they were. With a checkpoint, SIGTERM does the same, the
        run is given back, and the next one goes on there; after a second signal it does the last batch again.

        Raises `RunError` or its kinds, what a user's function raises, and what `start` does.

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
            with signals(lambda: live.ask_to_stop("a second signal gives it up")):
                live.go()
        except KeyboardInterrupt:
            pass  # the next run repeats the batch
        return live

    def start(self, plan: Plan | Planned) -> LiveRun:
        """Starts a run with a checkpoint in a thread of its own, and returns once the tables of its lookups are read.

        `plan` is a plan or a pipeline.

        Raises `CheckpointError` if the checkpoint is of another plan or in use, and `PlanError` for a source that
        cannot be read on from where a run was.

        Example, with the `plays` of `bl.Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> run = bl.LocalRunner(checkpoint="checkpoint", trigger="1 second").start(p.plan())
            >>> run.stop()
        """
        if self.checkpoint is None:
            raise ValueError("LocalRunner: a run that is started needs checkpoint=")
        live = self._begun(plan_of(plan, "LocalRunner.start"))
        live.go_beside()
        return live

    def _begun(self, plan: Plan) -> LiveRun:
        assert self.checkpoint is not None
        return LiveRun.begin(with_sinks_of_run(plan), self, LocalCheckpoint.of(self.checkpoint))
