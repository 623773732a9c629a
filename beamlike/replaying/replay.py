"""`bl.replay`: plays a batch of an earlier run again in this process, without writing to its sinks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import attrs
import polars as pl

from beamlike.errors import InputGone, UnknownName, UnknownStage, listed, nearest
from beamlike.io.base import output_frame
from beamlike.observe.waiting.explain import why
from beamlike.observe.words import clock, moment
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.plan.run_graph import describe_run
from beamlike.records.find import find_run
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.replaying.comparing import Comparison, compare, compare_rows
from beamlike.replaying.opening import open_run
from beamlike.replaying.playing import Player
from beamlike.replaying.recording import Recording, is_recording, open_recording
from beamlike.replaying.scratch import plan_of_run
from beamlike.replaying.state import Savepoints, SparkOptions, Start, nearest_start
from beamlike.replaying.state_rows import state_rows
from beamlike.runtime.recorded.batches import RecordedBatch, RecordedRun
from beamlike.system.path_names import is_remote
from stages.operator import MAIN


def replay(
    checkpoint: str | os.PathLike[str],
    pipeline: Plan | Planned,
    *,
    batch: int | None = None,
    savepoint: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    session: Any = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    trust: bool = False,
) -> Replay:
    """Plays a batch of an earlier run again, in this process, from the same input and the same state.

    The run may have been in process or on Spark. It must not be running. Nothing is written to its sinks or to its
    checkpoint. The pipeline's own functions run again, so a debugger stops in them.

    The state before the batch is that in the checkpoint, in a savepoint, or none before the first batch. From there,
    the batches in between are played, too. A checkpoint in process has the state before the last batches, as far as 32
    MB of replaced state reach; one of Spark has it for the last hundred batches, and starts Spark to read it.

    Args:
        checkpoint: The checkpoint of the run, or a file that `beamlike record` wrote.
        pipeline: The pipeline of the run, or its plan.
        batch: The number of the batch; by default the last batch that began.
        savepoint: Savepoints of the run, or folders with some, from which the replay may begin.
        session: The Spark session for the state of a run on Spark; by default a new one on `master`.
        master: The Spark master of a new session.
        config: Settings for Spark, as for `bl.savepoint.save`.
        trust: True to load pickled objects of a recording or savepoint, which run code that its writer chose.

    Returns:
        The replay, before the first stage of the batch.

    Raises:
        CheckpointError: There is no such batch, its state is not known, or the pipeline does not fit the run.
        InputGone: The input of the batch, or of one in between, cannot be read again. It is a `CheckpointError`.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.group_by("user").running(n=bl.count()).write("out", bl.Memory())
        <Collection 'plays.running': user String, points Int64, at String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint"))
        >>> replay = bl.replay("checkpoint", p, batch=2).go()
        >>> replay.rows("out")["n"].to_list()
        [1]
        >>> print(replay.comparison)
        counts and watermarks: those of the record
        sink 'out': Memory cannot be compared by its rows, only by their number
        no difference
    """
    plan = plan_of(pipeline, "replay")
    if is_recording(checkpoint):
        return _of_recording(open_recording(checkpoint), plan, batch, trust)
    run = open_run(checkpoint)
    asked = run.batch(run.last if batch is None else batch)
    plan = plan_of_run(run, plan)
    player, origin = player_before(
        run, plan, asked.number, Savepoints(savepoint, trust), SparkOptions(session, master, config)
    )
    player.begin(asked)
    records = records_of(run.path)

    def compared(done: Replay) -> Comparison:
        written = {name: done.rows(name) for name in plan.sinks}
        record = done.record
        return compare(run, plan, asked, record, before=records.get(asked.number), written=written)

    earlier = [record for number, record in sorted(records.items()) if number < asked.number]
    return Replay(plan, player, asked, origin, compared, earlier)


def player_before(
    run: RecordedRun,
    plan: Plan,
    number: int,
    savepoints: Savepoints = Savepoints(),  # noqa: B008  it is frozen
    spark: SparkOptions = SparkOptions(),  # noqa: B008  it is frozen
) -> tuple[Player, str]:
    """Returns a player that has played all batches before this one, and a text about the state where it began.

    `plan` is that of the run, as `plan_of_run` returns it.
    """
    start = nearest_start(run, number, savepoints, spark)
    try:
        return _played(run, plan, start, number)
    except InputGone:
        # Without the input of the first batches, Spark must be started for the state.
        other = nearest_start(run, number, savepoints, spark, few=-1)
        if other.after == start.after:
            raise
        return _played(run, plan, other, number)


def _played(run: RecordedRun, plan: Plan, start: Start, number: int) -> tuple[Player, str]:
    last = records_of(run.path).get(start.after)
    player = Player.of(plan, run.manifest, start.load(plan), last)
    between = range(start.after + 1, number)
    for before in between:
        try:
            player.play(run.batch(before))
        except InputGone as error:
            error.add_note(f"batch {number} is played from {start.origin}, and so are the batches in between")
            raise
    played = f", then batches {between[0]} to {between[-1]}" if len(between) > 1 else ""
    played = f", then batch {between[0]}" if len(between) == 1 else played
    return player, f"from {start.origin}{played}"


def records_of(checkpoint: str) -> dict[int, BatchRecord]:
    """Returns the records of a run by batch. There are none of a checkpoint that is not on this machine."""
    if is_remote(checkpoint):
        return {}
    try:
        return {record.batch: record for record in History.open(find_run(checkpoint)).batches}
    except (OSError, ValueError):
        return {}


def _of_recording(recording: Recording, plan: Plan, batch: int | None, trust: bool) -> Replay:
    number = recording.numbers[-1] if batch is None else batch
    asked = recording.facts(number).batch
    plan = recording.plan(plan)
    recording.require_trusted(plan, trust)
    player = recording.player(plan)
    for before in recording.numbers[: recording.numbers.index(number)]:
        player.play(recording.facts(before).batch)
    player.begin(asked)

    def compared(done: Replay) -> Comparison:
        expected = recording.expected(number)
        return compare_rows({name: done.rows(name) for name in recording.sinks}, expected, recording.notes)

    return Replay(plan, player, asked, f"from the recording of {recording.origin}", compared, [])


@attrs.define(eq=False, repr=False)
class Replay:
    """A batch of an earlier run, played again stage by stage. `bl.replay` returns it.

    Attributes:
        plan: The plan, with the names of the run.
        batch: The batch, with the input that it took.
        origin: A text about the state from which the replay began.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).named("counts").write(
        ...     "out", bl.Memory()
        ... )
        <Collection 'counts': user String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint"))
        >>> replay = bl.replay("checkpoint", p, batch=1).go(before="counts")
        >>> replay.arrivals("counts").height
        1
        >>> replay.step()
        'counts'
        >>> replay.state("counts", {"user": "bob"})["start"].to_list()
        [datetime.datetime(2026, 1, 31, 12, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))]
    """

    plan: Plan
    _player: Player
    batch: RecordedBatch
    origin: str
    _compare: Callable[[Replay], Comparison]
    _earlier: Sequence[BatchRecord]
    _compared: Comparison | None = attrs.field(default=None, init=False)

    @property
    def left(self) -> list[str]:
        """The stages that have not run yet, in order."""
        return [*self._player.left]

    def step(self) -> str:
        """Runs the next stage. Returns its name.

        Raises:
            ValueError: All stages have run.
        """
        if not self._player.left:
            raise ValueError("replay: all stages of the batch have run")
        return self._player.step()

    def go(self, *, before: str | None = None, after: str | None = None) -> Self:
        """Runs the stages that are left, and passes the rows to sinks in memory.

        Args:
            before: The stage at which to stop before it runs.
            after: The stage after which to stop.

        Raises:
            UnknownStage: There is no such stage.
            ValueError: The stage has run already.
        """
        stop = after if before is None else before
        if stop is not None and self._stage(stop) not in self._player.left:
            raise ValueError(f"replay: stage {stop!r} has run already; left are {self.left}")
        while self._player.left and self._player.left[0] != before:
            if self.step() == after:
                return self
        if not self._player.left and stop is None and self._player.record is None:
            self._player.finish()
        return self

    @property
    def record(self) -> BatchRecord:
        """The record of the batch. The stages that are left run first."""
        if self._player.record is None:
            self.go()
        assert self._player.record is not None
        return self._player.record

    def arrivals(self, stage: str, role: str = MAIN) -> pl.DataFrame:
        """Returns the rows that wait for a stage that is to run, with their event times.

        Args:
            stage: The name of the stage.
            role: The input, if the stage has several, such as the sides of a join.
        """
        operator = self.plan.stages[self._stage(stage)].stage.operator
        if role not in operator.inputs:
            raise UnknownName(
                f"stage {stage!r} has no input {role!r}; it has {listed(map(repr, operator.inputs))}"
            )
        frames = [frame for _, frame in self._player.engine.waiting(stage, role)]
        return output_frame(pl.concat(frames)) if frames else pl.DataFrame()

    def rows(self, name: str) -> pl.DataFrame:
        """Returns the panes of a stage that has run, or the rows for a sink, which run the stages that are left.

        Args:
            name: The name of a stage or sink.
        """
        if name in self.plan.stages:
            if name not in self._player.turns:
                raise ValueError(f"replay: stage {name!r} has not run yet; go(after={name!r}) runs it")
            return output_frame(self._player.turns[name].step.panes)
        if name not in self.plan.sinks:
            known = [*self.plan.stages, *self.plan.sinks]
            raise UnknownName(
                f"replay: there is no stage or sink {name!r}{nearest(name, known)}; {listed(known)}"
            )
        self.record  # noqa: B018  the stages that are left run
        found = self._player.written(name, self.batch.number)
        return output_frame(pl.DataFrame(schema=self.plan.sinks[name].schema)) if found is None else found

    def dropped(self, stage: str) -> Mapping[str, int]:
        """Returns the numbers of arrivals that a stage dropped in this batch, by reason."""
        return self._player.turns[self._stage(stage)].step.dropped

    def state(
        self, stage: str, key: Mapping[str, Any] | None = None, *, table: str | None = None
    ) -> pl.DataFrame:
        """Returns the state of a stage as rows: before its step, or after it if it has run.

        Args:
            stage: The name of the stage.
            key: The key, as a dict of its columns. By default all keys.
            table: The state table, if the stage has several.
        """
        return state_rows(self.plan.stages[self._stage(stage)], self._player.engine.store, key, table)

    def why(self, stage: str | None = None, key: str | None = None, window: str | None = None) -> list[str]:
        """Explains after the batch what a stage or window waits for, as `bl.observe.why` does.

        Args:
            stage: The name of a stage.
            key: A key, as tables show it.
            window: START/END, or a time in the window.
        """
        history = History(describe_run(self.plan), [*self._earlier, self.record], closed="stopped")
        return why(history, stage=stage, key=key, window=window)

    @property
    def comparison(self) -> Comparison:
        """The comparison with what the run recorded and wrote. The stages that are left run first."""
        if self._compared is None:
            self.go()
            self._compared = self._compare(self)
        return self._compared

    def lines(self) -> Iterator[str]:
        """Yields the replay as text: its input, its stages and sinks, and the comparison with the run."""
        batch = self.batch
        yield f"batch {batch.number}, {clock(batch.now)}, {self.origin}"
        for source, text in batch.texts():
            yield f"  {source}: {text}"
        record = self.record
        for name, stage in record.stages.items():
            panes = ", ".join(f"{count} {timing}" for timing, count in stage.panes.items()) or "none"
            yield f"  {name}: arrivals: {stage.elements}; panes: {panes}; watermark: {moment(stage.output)}"
        for name in self.plan.sinks:
            yield f"  {name}: rows: {record.sinks.get(name, 0)}"
        yield from self.comparison.lines()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        left = f", before stage {self._player.left[0]!r}" if self._player.left else ""
        return f"<Replay of batch {self.batch.number} {self.origin}{left}>"

    def _stage(self, name: str) -> str:
        if name not in self.plan.stages:
            known = self.plan.stages
            raise UnknownStage(
                f"replay: there is no stage {name!r}; the stages are {listed(known)}{nearest(name, known)}"
            )
        return name
