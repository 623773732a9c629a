"""Collections: what users build pipelines from. Each call adds one frozen node; nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import polars as pl

from beamlike.api.grouped import Grouped
from beamlike.api.row_steps import RowSteps
from beamlike.logical.dead_letters import dead_letters
from beamlike.logical.event_time import event_time_column, require_event_time, require_no_windows
from beamlike.logical.grouping import late, require_keys
from beamlike.logical.origins import Configure
from beamlike.logical.reread import reread
from beamlike.logical.windowing import rewindowed
from beamlike.steps.base import WindowInto
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.aggregates.base import Aggregate

if TYPE_CHECKING:
    from beamlike.io.base import Sink
    from stages.strategies.base import WatermarkStrategy
    from windowing.panes import Accumulation
    from windowing.time import Duration
    from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
    from windowing.triggers.base import Trigger
    from windowing.windows import WindowFn


@attrs.frozen(eq=False, repr=False)
class Collection(RowSteps):
    """Rows with a schema, an event time and a windowing, that come from a source or from a step.

    It is a handle on a `node` of what is declared in its `pipeline`.
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

        An element may move forward, and back by `allowed_skew`: the watermark from here on is so much behind. One that
        moves back further goes to `dead_letters()`, as it could be late through no fault of its source.
        """
        name, base = self._new_name("with_timestamps", name)
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

        `timestamp` and `timestamp_unit` say where the event time is, as in `read`; without, rows keep the one that
        they have. Between the source and here are only steps that look at each row for itself, and no windows. What
        of the source is used elsewhere, too, is read twice.
        """
        name, base = self._new_name("with_watermark", name)
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
        """The rows in these windows; what is not given stays as it is, and allowed lateness never shrinks.

        Without `windows` each row stays in the window that it is in. `on_time` and `closing` say whether the pane
        at the end of a window, and the last one, come even if they have nothing new: "always" or "if_non_empty".
        `allow_data_loss` takes a trigger that may drop elements; `allow_repeats` lets a later grouping count
        accumulating panes each time that they come.
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
        """Groups by these columns and by window: `.aggregate(...)` on the result says what to compute."""
        step, _ = self._new_name("aggregate", name)
        require_event_time(self.node, step)
        require_keys(self.schema, keys, step)
        return self._grouped(keys, name)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> Collection:
        """Aggregates over all rows of each window: `aggregate(plays=bl.count(), mean=bl.mean("length"))`."""
        return self._grouped((), None).aggregate(*unnamed, **aggregates)

    def dead_letters(self, *, name: str | None = None) -> Collection:
        """The rows that this source or step could not use: Strings `step`, `error`, `row` (its columns as JSON).

        Of a source (made by `read` or `with_watermark`): what its reader could not read, rows without a readable event
        time, and those that a step before `with_watermark` could not use. Of a step: rows that its function raised on,
        for which it gave something that does not fit, or for which an expression fails; the same of windows of your
        own, and of a grouping with a `CombineFn`. What no collection takes goes to a folder: beside the checkpoint, or
        `run.dead_letters` in process.
        """
        name, base = self._new_name("dead_letters", name)
        return self._after(dead_letters(self.node, name, base))

    def late(self, name: str | None = None) -> Collection:
        """The elements that this grouping dropped: the columns of its input, and a String column `reason`.

        The reason is "late" where the watermark had passed the window's end and the allowed lateness, and "closed"
        where the trigger had finished; it is "no window" for elements in gaps between windows, whose bounds are null.
        Each of the others is in the window that dropped it, and so would be dropped again:
        to group them, give them windows that are still open, such as `bl.GlobalWindows()` with a trigger.
        """
        name, base = self._new_name("late", name)
        return self._after(late(self.node, name, base))

    def head(self, n: int = 10, *, input_rows: int | None = 10_000) -> pl.DataFrame:
        """The first `n` rows, as a sink gets them, of a run in process on a part of the input; see `collect`."""
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "head", input_rows=input_rows, enough=n)

    def collect(self, *, input_rows: int | None = 100_000) -> pl.DataFrame:
        """The rows, as a sink gets them, of a run in process on the first `input_rows` rows of each source (None: all).

        Windows end where that ends; the log says so if there is more. Test streams are played whole. Nothing is
        written, recorded or declared: the pipeline stays as it is, and dead letters are only counted and logged.
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "collect", input_rows=input_rows)

    def write(self, name: str, sink: Sink) -> Collection:
        """Writes the rows to the sink, under this name; the collection again, for more steps."""
        self.pipeline.add_sink(name, sink, self.node)
        return self

    def _grouped(self, keys: tuple[str, ...], name: str | None) -> Grouped[Collection]:
        return Grouped(self.pipeline, self.node, keys, name, self._after)
