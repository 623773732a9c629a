"""Steps of a collection that set event times, watermarks and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

from beamlike.api.handle import Handle
from beamlike.errors import WrongType
from beamlike.expressions.describe import describe
from beamlike.logical.event_time import event_time_column, require_event_time
from beamlike.logical.origins import Configure
from beamlike.logical.reread import watermarked
from beamlike.logical.windowing import rewindowed
from beamlike.steps.base import WindowInto
from beamlike.steps.infer import run_empty
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.strategies.base import WatermarkStrategy

if TYPE_CHECKING:
    from beamlike.rows.event_time import TimeUnit
    from windowing.panes import Accumulation, AccumulationName, WhenEmpty
    from windowing.time import Duration
    from windowing.timestamp_combiners import CombinerName, TimestampCombiner, TimestampOf
    from windowing.triggers.base import Trigger
    from windowing.windows import WindowFn


@attrs.frozen(eq=False, repr=False)
class TimeSteps(Handle):
    """The steps of a collection that set event times, watermarks and windows."""

    def with_timestamps(
        self,
        column: str,
        *,
        timestamp_unit: TimeUnit | None = None,
        allowed_skew: Duration = "0s",
        name: str | None = None,
    ) -> Self:
        """Sets the event time of each row from a column.

        Rows without a readable time go to `dead_letters()`. So do rows whose time moves back by more than
        `allowed_skew`, because this step alone could make them late.

        Args:
            column: The column of times, of a type that `Pipeline.read` accepts.
            timestamp_unit: The unit of numbers since 1970: "s", "ms", "us" or "ns".
            allowed_skew: The duration by which the new time of a row may be before its old one. The watermark after
                this step is earlier by the same duration.
            name: The name of the step.

        Raises:
            PlanError: The rows have no event time yet.

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
        event_time_column(self.schema, column, timestamp_unit, name)
        skew = not_negative("allowed_skew", allowed_skew, name)
        origin = WithTimestamps(name, column, timestamp_unit, skew)
        run_empty(self.node.shape, origin)
        after = self.node.outside_windows()
        return self._after(attrs.evolve(after, name=name, base=base, origin=origin, inputs=(self.node,)))

    def with_watermark(
        self,
        watermark: WatermarkStrategy,
        timestamp: str | None = None,
        timestamp_unit: TimeUnit | None = None,
        name: str | None = None,
    ) -> Self:
        """Estimates the watermark anew from the rows here, for example after parsing.

        If only row-wise steps are between the source and this step, the rows become a source of their own; if the
        source is used elsewhere too, it is read twice. After any other step, such as a grouping, the watermark is the
        lesser of the strategy's and the one before. Windows of the rows are forgotten then, and one task has all rows.

        Args:
            watermark: The strategy that estimates how complete the source is.
            timestamp: The column with the event time, as in `Pipeline.read`. Without it, rows keep their event time.
            timestamp_unit: The unit of numbers in `timestamp`, as in `Pipeline.read`.
            name: The name of the new source.

        Raises:
            PlanError: After other than row-wise steps, `timestamp` is given, or the strategy is for sources only.

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
                f"the strategy is the first argument: with_watermark({describe(timestamp)}, timestamp={watermark!r})",
                step=name,
            )
        again = watermarked(
            self.node,
            self.pipeline.latest,
            watermark=watermark,
            timestamp=timestamp,
            unit=timestamp_unit,
            step=name,
            base=base,
        )
        return self._after(again)

    def window_into(
        self,
        windows: WindowFn | None = None,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | AccumulationName | None = None,
        timestamp_combiner: TimestampCombiner | TimestampOf | CombinerName | None = None,
        allowed_lateness: Duration | None = None,
        on_time: WhenEmpty | None = None,
        closing: WhenEmpty | None = None,
        allow_data_loss: bool | None = None,
        allow_repeats: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Assigns rows to windows, and sets when and how a following grouping emits.

        An omitted argument keeps its previous setting.

        Args:
            windows: The windows of event time for each row, such as `bl.FixedWindows("1m")`, `bl.SlidingWindows`,
                `bl.Sessions`, `bl.CalendarWindows`, `bl.GlobalWindows` or a subclass of `bl.CustomWindows`.
            trigger: When a window emits a pane. By default, when the watermark passes the window's end, and again for
                each bundle of late elements.
            accumulation: The contents of a window's further panes. "discarding" (the default): elements since the
                previous pane; "accumulating": all elements so far; "retracting": all elements so far, and before that
                the previous pane again, marked as retracted.
            timestamp_combiner: The event time of a pane, at which the window holds the output watermark.
                "end_of_window" (the default), "earliest" or "latest" of its elements that were not late, or
                `bl.timestamp_of(column)`.
            allowed_lateness: A duration such as "1h"; 0 by default. For so long after its end, by the watermark, a
                window still accepts elements; later ones are dropped, counted and available by `late()`. A second
                `window_into` cannot shorten it: the longer one applies.
            on_time: "always" (the default) emits a pane at the end of each window; "if_non_empty" only if the window
                has new elements.
            closing: The same choice for the last pane, when the allowed lateness is over; "if_non_empty" by default.
            allow_data_loss: True accepts a trigger that may finish before its window is over, so that later elements
                are dropped; otherwise such a trigger is refused.
            allow_repeats: True lets a later grouping read each accumulating pane, and so count an element several
                times; otherwise that is refused.
            name: The name of the step.

        Raises:
            PlanError: The rows have no event time, or the choices contradict each other.

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
            # The windows of rows do not change, so there is no step to compute.
            return self._next(name=name, base=base, origin=Configure(), windowing=windowing)
        shape = attrs.evolve(self.node.shape, system=self.node.shape.with_windows(windows))
        origin = WindowInto(name, windowing)
        return self._next(
            name=name, base=base, origin=origin, shape=shape, windowing=windowing, merged=False, unlike=""
        )
