"""Collections: what users build pipelines from. Each call adds one frozen node; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl

from beamlike.api.grouped import Grouped
from beamlike.api.handle import Handle
from beamlike.api.join_steps import JoinSteps
from beamlike.api.once_steps import OnceSteps
from beamlike.api.row_steps import RowSteps
from beamlike.errors import WrongType
from beamlike.expressions.describe import describe
from beamlike.logical.dead_letters import dead_letters
from beamlike.logical.event_time import event_time_column, require_event_time, require_no_windows
from beamlike.logical.grouping import late, require_keys
from beamlike.logical.names import require_named
from beamlike.logical.origins import Configure
from beamlike.logical.reread import reread
from beamlike.logical.side_nodes import late_of_side
from beamlike.logical.windowing import rewindowed
from beamlike.steps.base import WindowInto
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.aggregates.base import Aggregate
from stages.strategies.base import WatermarkStrategy

if TYPE_CHECKING:
    from beamlike.io.base import Sink
    from windowing.panes import Accumulation
    from windowing.time import Duration
    from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
    from windowing.triggers.base import Trigger
    from windowing.windows import WindowFn


@attrs.frozen(eq=False, repr=False)
class Collection(RowSteps, OnceSteps, JoinSteps):
    """Rows with a schema, an event time and a windowing, that come from a source or from a step.

    It is a handle on a `node` of what is declared in its `pipeline`. Each method gives a new collection and leaves
    this one as it is, so several steps may begin with the same one. A method raises `PlanError`, with the step at
    fault, for what cannot be run: a column that is not there, a type that does not fit, a name that is taken.

    Example:
        >>> scores = [
        ...     {"user": "ada", "points": 3, "at": "2026-01-31T12:00:10Z"},
        ...     {"user": "bob", "points": 5, "at": "2026-01-31T12:00:40Z"},
        ...     {"user": "ada", "points": 4, "at": "2026-01-31T12:01:20Z"},
        ... ]
        >>> p = bl.Pipeline("scores")
        >>> rows = bl.Rows(scores, rows_per_batch=1)
        >>> plays = p.read("plays", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
        >>> plays
        <Collection 'plays': user String, points Int64, at String>
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.aggregate(points=bl.sum("points")).collect()["points"].to_list()
        [8, 4]

    Other examples go on with `plays`.
    """

    def with_timestamps(
        self,
        column: str,
        *,
        timestamp_unit: str | None = None,
        allowed_skew: Duration = "0s",
        name: str | None = None,
    ) -> Collection:
        """The rows with the event time that is in this column, which every row must have.

        `column` has times as `Pipeline.read` takes them, numbers in `timestamp_unit` ("s", "ms", "us" or "ns") since
        1970. An element may move forward, and back by `allowed_skew`, a duration: the watermark from here on is so
        much behind. An element that moves back further goes to `dead_letters()`, as it could be late through no fault
        of its source. `name` is that of the step. Raises `PlanError` where rows have no event time yet, or have
        windows already.

        Example, with the `plays` of `Collection`:
            >>> from datetime import timedelta
            >>> ended = plays.with_columns(end=bl.event_time() + timedelta(minutes=1))
            >>> ended.with_timestamps("end").collect()["event_time"].dt.strftime("%H:%M:%S").to_list()
            ['12:01:10', '12:01:40', '12:02:20']
        """
        name, base = self._new_name("with_timestamps", name)
        if not isinstance(column, str):
            raise WrongType(
                "with_timestamps takes the name of a column; make one before, as in with_columns(time=...)"
                f".with_timestamps('time'), not {describe(column)}",
                step=name,
            )
        require_event_time(self.node, name)
        require_no_windows(self.node.shape, name)
        event_time_column(self.schema, column, timestamp_unit, name)
        skew = not_negative("allowed_skew", allowed_skew, name)
        return self._step(WithTimestamps(name, column, timestamp_unit, skew), base)

    def with_watermark(
        self,
        watermark: WatermarkStrategy,
        timestamp: str | None = None,
        timestamp_unit: str | None = None,
        name: str | None = None,
    ) -> Collection:
        """The rows as those of a source of their own, with this watermark, as after a parse.

        `watermark` says how far the source is complete. `timestamp` names the column with the event time, and
        `timestamp_unit` the unit of numbers in it, as in `Pipeline.read`; without them rows keep the event time that
        they have. `name` is that of the new source. Between the source and here are only steps that look at each row
        for itself, and no windows: else `PlanError` is raised. What of the source is used elsewhere, too, is read
        twice.

        Example:
            >>> lines = bl.Pipeline("p").read("lines", bl.Rows([{"line": "10 ada"}, {"line": "70 bob"}]))
            >>> parsed = lines.map(lambda row: {"at": int(row["line"].split()[0])}, schema={"at": int})
            >>> timed = parsed.with_watermark(bl.MonotonousTimestamps(), timestamp="at", timestamp_unit="s")
            >>> timed.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
            [1, 1]
        """
        name, base = self._new_name("with_watermark", name)
        if isinstance(watermark, str) and isinstance(timestamp, WatermarkStrategy):
            raise WrongType(
                f"the strategy comes first: with_watermark({describe(timestamp)}, timestamp={watermark!r})",
                step=name,
            )
        again = reread(self.node, self.pipeline.latest, watermark, timestamp, timestamp_unit, name, base)
        return self._after(again)

    def window_into(
        self,
        windows: WindowFn | None = None,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | str | None = None,
        timestamp_combiner: TimestampCombiner | TimestampOf | str | None = None,
        allowed_lateness: Duration | None = None,
        on_time: str | None = None,
        closing: str | None = None,
        allow_data_loss: bool | None = None,
        allow_repeats: bool | None = None,
        name: str | None = None,
    ) -> Collection:
        """The rows in windows, and when and how a grouping of them emits. What is not given stays as it is.

        `windows`: into which windows of event time each row goes, such as `bl.FixedWindows("1m")`,
        `bl.SlidingWindows`, `bl.Sessions`, `bl.CalendarWindows`, `bl.GlobalWindows` or a subclass of
        `bl.CustomWindows`. Without it, rows stay in the windows that they are in.
        `trigger`: when a window emits a pane. By default when the watermark passes its end, and again for every
        bundle of late elements.
        `accumulation`: what a further pane of a window has. "discarding" (the default): what came since the last one;
        "accumulating": all that came so far; "retracting": all, after the pane before has come once more, marked as
        taken back.
        `timestamp_combiner`: the event time of a pane. "end_of_window" (the default), or "earliest" or "latest" of
        its elements that were not late, or `bl.timestamp_of(column)`. The output watermark waits for it.
        `allowed_lateness`: a duration such as "1h", 0 by default. So long after its end a window still takes
        elements, by the watermark; what comes later is dropped, counted, and can be had with `late()`. It never
        shrinks: of this one and that of an earlier `window_into` the longer one holds.
        `on_time`: whether the pane at the end of a window comes "always" (the default), or, "if_non_empty", only
        where it has something new.
        `closing`: the same of the last pane, that of a window whose allowed lateness is over; "if_non_empty" by
        default.
        `allow_data_loss`: True takes a trigger that may finish before its window is over, so that elements which come
        later are dropped; without it such a trigger is refused.
        `allow_repeats`: True lets a later grouping take accumulating panes each time that they come, and so count an
        element several times; without it that is refused.
        `name`: that of the step.

        Raises `PlanError` where rows have no event time, and for choices that do not go together.

        Example, with the `plays` of `Collection`:
            >>> early = bl.AfterWatermark(early=bl.AfterCount(1))
            >>> windowed = plays.window_into(bl.FixedWindows("1m"), trigger=early, accumulation="accumulating")
            >>> windowed.aggregate(n=bl.count()).collect()[["n", "pane_timing"]].rows()
            [(1, 'early'), (2, 'early'), (1, 'early'), (2, 'on_time'), (1, 'on_time')]
        """
        name, base = self._new_name("window_into", name)
        require_event_time(self.node, name)
        changes = {
            "windows": windows,
            "trigger": trigger,
            "accumulation": accumulation,
            "timestamp_combiner": timestamp_combiner,
            "allowed_lateness": allowed_lateness,
            "on_time": on_time,
            "closing": closing,
            "allow_data_loss": allow_data_loss,
            "allow_repeats": allow_repeats,
        }
        windowing = rewindowed(self.node, changes, name)
        if windows is None:
            return self._next(name=name, base=base, origin=Configure(), windowing=windowing)
        shape = attrs.evolve(self.node.shape, system=self.node.shape.with_windows(windows))
        origin = WindowInto(name, windowing)
        return self._next(name=name, base=base, origin=origin, shape=shape, windowing=windowing, merged=False)

    def group_by(self, *keys: str, name: str | None = None) -> Grouped[Collection]:
        """Groups by these columns and by window: call `aggregate` on the result, to say what is computed.

        `keys` are names of columns, at least one, and `name` is that of the step. Raises `PlanError` where a column
        is not there, has a type that keys may not have (a list or a float, say), or rows have no event time.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d")).group_by("user").aggregate(n=bl.count())
            >>> days.collect()[["user", "n"]].rows()
            [('ada', 2), ('bob', 1)]
        """
        step, _ = self._new_name("aggregate", name)
        require_event_time(self.node, step)
        require_keys(self.schema, keys, step)
        return self._grouped(keys, name)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> Collection:
        """Aggregates over all rows of each window, without keys; see `Grouped.aggregate`.

        Each keyword names a column of the result, and its value is an aggregate such as `bl.count()`.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> days.aggregate(n=bl.count(), best=bl.max("points")).collect()[["n", "best"]].rows()
            [(3, 5)]
        """
        return self._grouped((), None).aggregate(*unnamed, **aggregates)

    def group_into_batches(
        self, *, size: int | None = None, bytes: int | None = None, max_wait: Duration | None = None
    ) -> Collection:
        """All rows of each window in batches, without keys; see `Grouped.group_into_batches`.

        Where the rows of one shard come in any batches, `map_batches` does the same and needs no state.

        Example, with the `plays` of `Collection`:
            >>> batches = plays.group_into_batches(size=2)
            >>> batches.map(lambda row: {"n": len(row["rows"])}, schema={"n": int}).collect()["n"].to_list()
            [2, 1]
        """
        return self._grouped((), None).group_into_batches(size=size, bytes=bytes, max_wait=max_wait)

    def dead_letters(self, *, name: str | None = None) -> Collection:
        """The rows that this source or step could not use: Strings `step`, `error`, `row` (its columns as JSON).

        Of a source (made by `read` or `with_watermark`): what its reader could not read, rows without a readable
        event time, and those that a step before `with_watermark` could not use. Of a step: rows that its function
        raised on, for which it gave something that does not fit, or for which an expression fails; the same of
        windows of your own, and of a grouping with a `CombineFn`. What no collection takes goes to a folder: beside
        the checkpoint, or `run.dead_letters` in process. `name` is that of the step. Raises `PlanError` for a
        collection that has none.

        Example, with the `plays` of `Collection`:
            >>> shares = plays.map(lambda row: {"share": 1 / (row["points"] - 5)}, schema={"share": float})
            >>> shares.dead_letters().collect()["error"].to_list()
            ['ZeroDivisionError: division by zero']
        """
        name, base = self._new_name("dead_letters", name)
        return self._after(dead_letters(self.node, name, base))

    def late(self, name: str | None = None, *, side: Handle | None = None) -> Collection:
        """The elements that this grouping dropped: the columns of its input, and a String column `reason`.

        The reason is "late" where the watermark had passed the window's end and the allowed lateness, and "closed"
        where the trigger had finished; it is "no window" for elements in gaps between windows, whose bounds are null.
        Each of the others is in the window that dropped it, and so would be dropped again:
        to group them, give them windows that are still open, such as `bl.GlobalWindows()` with a trigger.
        `name` is that of the step. With `side`, of a step that looks at that collection: the rows of the side that came
        when their window was over, or whose windows have no place for them. Raises `PlanError` for a collection that is
        no grouping's, and for a side that it does not look at, or that is not in windows.

        Example, with the `plays` of `Collection`:
            >>> gaps = plays.window_into(bl.SlidingWindows("30s", "1m")).aggregate(n=bl.count())
            >>> gaps.late().collect()[["user", "reason"]].rows()
            [('bob', 'no window')]
        """
        name, base = self._new_name("late", name)
        if side is None:
            return self._after(late(self.node, name, base))
        if not isinstance(side, Handle):
            raise WrongType(f"side must be a collection, not {side!r}", step=name)
        pipeline = self.pipeline
        return self._made_beside(
            late_of_side(self.node, side.node, name, base, pipeline.free, pipeline.latest)
        )

    def head(self, n: int = 10, *, input_rows: int | None = 10_000) -> pl.DataFrame:
        """The first `n` rows, as a polars frame, of a run in process on a part of the input.

        It ends as soon as there are `n` rows, or after the first `input_rows` rows of each source (None: all of
        them); else as `collect`, and it raises the same.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").head(2)["user"].to_list()
            ['ada', 'bob']
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "head", input_rows=input_rows, enough=n)

    def collect(self, *, input_rows: int | None = 100_000) -> pl.DataFrame:
        """The rows, as a sink gets them in a polars frame, of a run in process on a part of the input.

        That part is the first `input_rows` rows of each source (None: all). Windows end where that ends; the log says
        so if there is more. Test streams are played whole. Nothing is written, recorded or declared: the pipeline
        stays as it is, and dead letters are only counted and logged. Raises what a run raises, and `WrongType` for an
        `input_rows` that is no whole number of at least 1.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user", "points").collect()[["user", "points"]].rows()
            [('ada', 3), ('bob', 5), ('ada', 4)]
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "collect", input_rows=input_rows)

    def write(
        self,
        name: str,
        sink: Sink = None,  # type: ignore[assignment]  # an error says more
        *,
        columns: Iterable[str] | None = None,
    ) -> Collection:
        """Writes the rows to the sink, under this name; gives the collection again, for more steps.

        A sink gets the columns of the rows, and those of the engine: `event_time`, `window_start`, `pane_timing` and so
        on. `columns` names the ones to write, of either kind, in this order. A sink that replaces rows needs their keys
        among them.

        Raises `PlanError` where the name is taken, the sink is none, or it cannot have these rows, and for `columns`
        that are not there or lack a key.

        Example, with the `plays` of `Collection`:
            >>> out = bl.Memory()
            >>> plays.select("user").write("users", out)
            <Collection 'plays.select': user String>
            >>> p.run()
            <LocalRun of 'scores': 4 batches>
            >>> out.frame()["user"].to_list()
            ['ada', 'bob', 'ada']
            >>> plays.write("points", bl.CSV("points"), columns=["event_time", "points"])
            <Collection 'plays': user String, points Int64, at String>
        """
        require_named(name, sink, "write", "bl.Parquet('plays')")
        self.pipeline.add_sink(name, sink, self.node, columns)
        return self

    def _grouped(self, keys: tuple[str, ...], name: str | None) -> Grouped[Collection]:
        return Grouped(self.pipeline, self.node, keys, name, self._after)
