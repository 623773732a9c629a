"""The steps of a collection. Each method call adds one immutable node to the graph; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import attrs
import polars as pl

from beamlike.api.column_steps import ColumnSteps
from beamlike.api.grouped import Grouped
from beamlike.api.handle import Handle
from beamlike.api.join_steps import JoinSteps
from beamlike.api.once_steps import OnceSteps
from beamlike.api.operator_steps import OperatorSteps
from beamlike.api.row_steps import RowSteps
from beamlike.api.time_steps import TimeSteps
from beamlike.errors import WrongType
from beamlike.io.memory import memory_of
from beamlike.logical.dead_letters import dead_letters
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import late, require_keys
from beamlike.logical.names import require_named
from beamlike.logical.side_nodes import late_of_side
from stages.aggregates.base import Aggregate

if TYPE_CHECKING:
    from beamlike.io.base import Sink
    from beamlike.observe.charts.figure import Picture
    from windowing.time import Duration


@attrs.frozen(eq=False, repr=False)
class Steps(RowSteps, ColumnSteps, TimeSteps, OnceSteps, JoinSteps, OperatorSteps):
    """All steps of a collection. `Collection` is in the module of `Pipeline`, since each refers to the other."""

    def group_by(self, *keys: str, name: str | None = None) -> Grouped[Self]:
        """Groups rows by these columns and by window. Call `aggregate` on the result to declare what is computed.

        Args:
            *keys: The key columns, at least one.
            name: The name of the step.

        Raises:
            PlanError: A column does not exist or its type cannot be a key (for example a list or a float), or the rows
                have no event time.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d")).group_by("user").aggregate(n=bl.count())
            >>> days.collect()[["user", "n"]].rows()
            [('ada', 2), ('bob', 1)]
        """
        # This name is used only in errors. The following step, such as `aggregate`, gets the final name.
        step, _ = self._new_name("aggregate", name)
        require_event_time(self.node, step)
        require_keys(self.schema, keys, step)
        return self._grouped(keys, name)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> Self:
        """Aggregates all rows of each window, without keys; see `Grouped.aggregate`.

        Args:
            **aggregates: Aggregates such as `bl.count()`, by the name of their column in the result.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> days.aggregate(n=bl.count(), best=bl.max("points")).collect()[["n", "best"]].rows()
            [(3, 5)]
        """
        return self._grouped((), None).aggregate(*unnamed, **aggregates)

    def group_into_batches(
        self, *, size: int | None = None, bytes: int | None = None, max_wait: Duration | None = None
    ) -> Self:
        """Collects all rows of each window in batches, without keys; see `Grouped.group_into_batches`.

        If batches of the rows of one shard are enough, `map_batches` does the same without state.

        Example, with the `plays` of `Collection`:
            >>> batches = plays.group_into_batches(size=2)
            >>> batches.map(lambda row: {"n": len(row["rows"])}, schema={"n": int}).collect()["n"].to_list()
            [2, 1]
        """
        return self._grouped((), None).group_into_batches(size=size, bytes=bytes, max_wait=max_wait)

    def dead_letters(self, *, name: str | None = None) -> Self:
        """Returns the rows that this source or step could not use: Strings `step`, `error` and `row` (its columns as
        JSON).

        For a source (from `read` or `with_watermark`): rows that its reader could not read, rows without a readable
        event time, and rows that a step before `with_watermark` could not use. For a step: rows for which its function
        or an expression failed, or for which the function returned a value that does not fit; likewise for windows of
        your own, and for a grouping with a `CombineFn`. Dead letters that no collection reads are written to a folder
        next to the checkpoint; a local run without a checkpoint has them in `run.dead_letters`.

        Raises:
            PlanError: The collection has no dead letters.

        Example, with the `plays` of `Collection`:
            >>> shares = plays.map(lambda row: {"share": 1 / (row["points"] - 5)}, schema={"share": float})
            >>> shares.dead_letters().collect()["error"].to_list()
            ['ZeroDivisionError: division by zero']
        """
        name, base = self._new_name("dead_letters", name)
        return self._after(dead_letters(self.node, name, base))

    def late(self, name: str | None = None, *, side: Handle | None = None) -> Self:
        """Returns the elements that this grouping dropped: the columns of its input, and a String column `reason`.

        The reason is "late" if the watermark had passed the window's end and the allowed lateness, "closed" if the
        trigger had finished, and "no window" for elements in gaps between windows, whose bounds are null. All other
        elements are in the window that dropped them, and so would be dropped again: to group them, assign windows that
        are still open, such as `bl.GlobalWindows()` with a trigger.

        Args:
            name: The name of the step.
            side: A side input of this step. The result then has the rows of that side that arrived after the end of
                their window, or that are in no window.

        Raises:
            PlanError: The collection is not the result of a grouping; or the step does not read `side`, or the side has
                no windows.

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
        return self._made_with_helpers(
            late_of_side(self.node, side.node, name, base, free=pipeline.free, latest=pipeline.latest)
        )

    def promise(self, complete: float, within: Duration, *, hold: bool = False) -> Self:
        """Promises that on-time panes of this grouping are complete enough, and in time. Records count the misses.

        An on-time pane keeps the promise if `bl.pane_complete()` is at least `complete`, and if the newest event time
        is past the end of its window by at most `within`. If a window has no on-time pane, its first late pane counts.
        Early panes and corrections do not count. [Completeness](../completeness.md) has metrics and alerts.

        With `hold=True` the grouping waits: its windows are not over until the share `complete` of the rows at any time
        before their end has arrived, or until `within` has passed. Late elements, and the watermarks of later steps,
        follow this time. Other uses of this grouping wait, too.

        Args:
            complete: The least share, such as 0.999. A share of 1 can only be proved.
            within: The event time after the end of the window, such as "2m".
            hold: True if on-time panes wait for the promise.

        Raises:
            PlanError: The collection is not the result of an aggregation in windows that end, the share is not above 0
                and at most 1, or the time is negative.

        Example, with the `plays` of `Collection`:
            >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("minutes")
            >>> minutes.promise(complete=0.9, within="2m").write("out", bl.Memory())
            <Collection 'minutes': n Int64>
            >>> p.run().batches[-1].stages["minutes"].promised
            {'delayed': 0, 'incomplete': 0, 'kept': 1}
        """
        from beamlike.logical.promise import promised  # few pipelines need it

        node = self.pipeline.latest(self.node)
        after = promised(node, complete, within, hold)
        self.pipeline.change(node, after)
        return type(self)(self.pipeline, after)

    def head(self, n: int = 10, *, input_rows: int | None = 10_000) -> pl.DataFrame:
        """Runs a part of the input in process, and returns the first rows as a polars frame.

        The run ends as soon as it has `n` rows. Otherwise it works like `collect`.

        Args:
            n: The number of rows.
            input_rows: The number of rows that are read of each source; None for all.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").head(2)["user"].to_list()
            ['ada', 'bob']
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "head", input_rows=input_rows, enough=n)

    def collect(self, *, input_rows: int | None = 100_000) -> pl.DataFrame:
        """Runs a part of the input in process, and returns the rows as a polars frame, as a sink receives them.

        Windows end where the part ends; a warning is logged if there is more. Test streams are played to their end.
        Nothing is written, recorded or declared, and dead letters are only counted and logged.

        Args:
            input_rows: The number of rows that are read of each source, at least 1; None for all.

        Raises:
            WrongType: `input_rows` is no whole number of at least 1.
            RunError: The run fails; so do all other errors of `Pipeline.run`.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user", "points").collect()[["user", "points"]].rows()
            [('ada', 3), ('bob', 5), ('ada', 4)]
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "collect", input_rows=input_rows)

    def show(self, n: int = 10, *, input_rows: int | None = 10_000) -> None:
        """Runs a part of the input in process, as `head` does, and shows the first rows.

        A notebook shows a table, and a terminal text. Times are in UTC. Panes have the bounds of their window, but not
        their event time.

        Args:
            n: The number of rows.
            input_rows: The number of rows that are read of each source; None for all.

        Example, with the `plays` of `Collection`:
            >>> plays.filter(bl.col("user") == "bob").show()
            ┌──────┬────────┬──────────────────────┬─────────────────────┐
            │ user ┆ points ┆ at                   ┆ event_time          │
            ╞══════╪════════╪══════════════════════╪═════════════════════╡
            │ bob  ┆ 5      ┆ 2026-01-31T12:00:40Z ┆ 2026-01-31 12:00:40 │
            └──────┴────────┴──────────────────────┴─────────────────────┘
        """
        from beamlike.api.looking import show_rows
        from beamlike.api.sampling import sample

        show_rows(sample(self.pipeline, self.node, "show", input_rows=input_rows, enough=n), self.node)

    def plot(self, value: str | None = None, *, input_rows: int | None = 100_000) -> Picture:
        """Runs a part of the input in process, as `collect` does, and draws the rows in event time.

        A pane is a bar from the start to the end of its window; its colour and its marker say if it is early, on time
        or late. Rows without a window are points at their event time. The keys of a grouping have a lane each, with the
        same scale: at most 12, those with the most rows. Rows in the global window whose event time is its end are not
        drawn.

        Args:
            value: The column with the height of each row; by default the first one with numbers that is no key.
            input_rows: The number of rows that are read of each source, at least 1; None for all.

        Returns:
            A picture, which a notebook shows and `.save(path)` writes.

        Raises:
            PlanError: The rows have no event time, or `value` is no column of numbers.
            ModuleNotFoundError: matplotlib is not installed, which the extra `report` installs.

        Example, with the `plays` of `Collection`:
            >>> minutes = plays.window_into(bl.FixedWindows("1m")).group_by("user")
            >>> minutes.aggregate(points=bl.sum("points")).plot("points").save("points.svg")
        """
        from beamlike.api.looking import columns_to_draw, draw
        from beamlike.api.sampling import sample

        columns = columns_to_draw(self.node, value, self.name)
        return draw(sample(self.pipeline, self.node, "plot", input_rows=input_rows), columns, self.name)

    def write(
        self,
        name: str,
        sink: Sink = None,  # type: ignore[assignment]  # an error says more
        *,
        columns: Iterable[str] | None = None,
    ) -> Self:
        """Writes the rows to a sink, and returns this collection, for further steps.

        A sink receives the columns of the rows and the engine's: `event_time`, `window_start`, `pane_timing` and so on.

        Args:
            name: The name of the sink.
            sink: The sink, such as `bl.Parquet("out")`.
            columns: The columns to write, of either kind, in this order; all by default. For a sink that replaces rows,
                the keys must be among them.

        Raises:
            PlanError: The name is taken, `sink` is no sink or cannot write these rows, or `columns` names a column that
                does not exist or lacks a key.

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

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the rows that a run wrote to a `Memory`, for libraries that read Arrow, as in
        `pyarrow.table(collection)`.
        """
        name = self.pipeline.latest(self.node).name
        sinks = {one.name: one.sink for one in self.pipeline.written() if one.node.name == name}
        return memory_of(sinks, f"the collection {self.name!r}").__arrow_c_stream__(requested_schema)

    def _grouped(self, keys: tuple[str, ...], name: str | None) -> Grouped[Self]:
        return Grouped(self.pipeline, self.node, keys, name, self._after)
