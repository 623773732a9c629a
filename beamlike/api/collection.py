"""Collections: what users build pipelines from. Each call adds one frozen node; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl

from beamlike.api.column_steps import ColumnSteps
from beamlike.api.grouped import Grouped
from beamlike.api.handle import Handle
from beamlike.api.join_steps import JoinSteps
from beamlike.api.once_steps import OnceSteps
from beamlike.api.row_steps import RowSteps
from beamlike.api.time_steps import TimeSteps
from beamlike.errors import WrongType
from beamlike.logical.dead_letters import dead_letters
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import late, require_keys
from beamlike.logical.names import require_named
from beamlike.logical.side_nodes import late_of_side
from stages.aggregates.base import Aggregate

if TYPE_CHECKING:
    from beamlike.io.base import Sink
    from windowing.time import Duration


@attrs.frozen(eq=False, repr=False)
class Collection(RowSteps, ColumnSteps, TimeSteps, OnceSteps, JoinSteps):
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
