"""Steps of a collection that set event times, watermarks and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

from beamlike.api.handle import Handle
from beamlike.errors import WrongType
from beamlike.expressions.describe import describe
from beamlike.logical.event_time import event_time_column, require_event_time, require_no_windows
from beamlike.logical.origins import Configure
from beamlike.logical.reread import reread
from beamlike.logical.windowing import rewindowed
from beamlike.steps.base import WindowInto
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.strategies.base import WatermarkStrategy

if TYPE_CHECKING:
    from windowing.panes import Accumulation
    from windowing.time import Duration
    from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
    from windowing.triggers.base import Trigger
    from windowing.windows import WindowFn


@attrs.frozen(eq=False, repr=False)
class TimeSteps(Handle):
    """The steps of a collection that set event times, watermarks and windows."""

    def with_timestamps(
        self,
        column: str,
        *,
        timestamp_unit: str | None = None,
        allowed_skew: Duration = "0s",
        name: str | None = None,
    ) -> Self:
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
    ) -> Self:
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
    ) -> Self:
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
