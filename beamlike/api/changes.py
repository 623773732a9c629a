"""The changes of a table, from the log in which a database writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamlike.api.pipeline import Collection
from beamlike.api.recorded import recorded
from beamlike.errors import WrongType
from beamlike.steps.infer import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamlike.rows.event_time import TimeUnit
    from windowing.time import Duration


@recorded
def changes(
    log: Collection,
    *,
    op: str = "op",
    before: str | None = "before",
    after: str | None = "after",
    key: str | Sequence[str] | None = None,
    timestamp: str | None = None,
    timestamp_unit: TimeUnit | None = None,
    allowed_skew: Duration = "0s",
    name: str | None = None,
) -> Collection:
    """Turns a log of changes into changes: rows that arrive, and rows that are retracted.

    In a log as Debezium writes it, each row has an operation, the row of the table before it, and the row after it. The
    result has the columns of these rows. Its groupings and joins are always those of the rows that the table contains.

    Rows of the log that say nothing else, such as tombstones, give no change. Rows that cannot be used go to
    `dead_letters()`: those with another operation, or without the old row of an update or delete, of which the log may
    have only the key. A log that has no old rows needs `key`.

    Args:
        log: The log, in the order in which the database wrote it.
        op: The column of the operation: "c" or "insert", "r" (a row that was there before the log), "u" or "update",
            "d" or "delete". If each row of the log is one change: "+I", "-U", "+U", "-D", "insert" or "delete"; or a
            Boolean column, which is true for a row that is retracted.
        before: The column with the old row, a struct; None if each row of the log is one change.
        after: The column with the new row, a struct with the same fields; None if each row of the log is one change.
        key: The columns of the table's key, if the log does not have whole old rows. The newest row of each key is then
            stored; it is retracted when the next one arrives, or when the key is deleted.
        timestamp: The column of the table with the event time of its rows, such as the time of an order. By default
            rows of the table have no time of their own: they are in the global window, at its end, and never final.
        timestamp_unit: The unit of numbers in `timestamp`, as in `Pipeline.read`.
        allowed_skew: The duration by which `timestamp` may be before the event time of the row of the log, as in
            `with_timestamps`. The watermark is earlier by the same duration.
        name: The name of the step.

    Raises:
        PlanError: A column does not exist or has a wrong type; the rows of the log may retract others, or have no event
            time.

    Example:
        >>> log = [
        ...     {"op": "c", "before": None, "after": {"user": "ada", "points": 3}, "at": 0},
        ...     {"op": "c", "before": None, "after": {"user": "bob", "points": 5}, "at": 1},
        ...     {"op": "u", "before": {"user": "ada", "points": 3}, "after": {"user": "ada", "points": 4}, "at": 2},
        ...     {"op": "d", "before": {"user": "bob", "points": 5}, "after": None, "at": 3},
        ... ]
        >>> watermark = bl.MonotonousTimestamps()
        >>> rows = bl.Pipeline("p").read("log", bl.Rows(log), timestamp="at", timestamp_unit="s", watermark=watermark)
        >>> bl.changes(rows).aggregate(users=bl.count(), points=bl.sum("points")).collect()[["users", "points"]].rows()
        [(1, 4)]
    """
    from beamlike.logical.changes import changes_of  # few pipelines need it

    if not isinstance(log, Collection):
        raise WrongType(f"expected a collection, got {log!r}", step=name or "changes")
    step = log.pipeline.new_name(name, f"{log.node.base}.changes")
    base = log.node.base if name is None else step
    keys = None if key is None else tuple(flat([key]))
    free = log.pipeline.free
    node = changes_of(
        log.node, op, before, after, keys, timestamp, timestamp_unit, allowed_skew, step, base, free
    )
    if keys:
        log.pipeline.keep(node.inputs[0])
    log.pipeline.keep(node)
    return Collection(log.pipeline, node)
