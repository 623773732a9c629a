"""Expressions of users for the columns, event time, window and pane of a row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
from polars.exceptions import ComputeError

from beamlike.errors import PlanError, WrongType
from beamlike.expressions.column import expression
from beamlike.expressions.tree import extracted
from windowing.columns import (
    EVENT_TIME,
    PANE_CAUSE,
    PANE_COMPLETE,
    PANE_DRAINED,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    PANE_WATERMARK,
    RESERVED_PREFIX,
    WINDOW_END,
    WINDOW_START,
)
from windowing.timestamp_combiners import TimestampOf

__all__ = [
    "col",
    "event_time",
    "lit",
    "pane_cause",
    "pane_complete",
    "pane_drained",
    "pane_first",
    "pane_index",
    "pane_last",
    "pane_nonspeculative_index",
    "pane_retracted",
    "pane_timing",
    "pane_watermark",
    "regexp_extract",
    "timestamp_of",
    "when",
    "window_end",
    "window_start",
]


def col(*names: str) -> nw.Expr:
    """The values of a column by its name, as an expression that `filter`, `with_columns` and others compute per row.

    Expressions have Python's operators (`+`, `==`, and `&`, `|`, `~` for and, or, not) and the methods of narwhals.

    Example, with the `plays` of `bl.Collection`:
        >>> good = (bl.col("points") > 3) & bl.col("user").is_in(["ada", "eve"])
        >>> plays.filter(good).collect()["points"].to_list()
        [4]
    """
    for name in names:
        if not isinstance(name, str | list | tuple):
            raise WrongType(f"bl.col takes the name of a column, such as bl.col('user'), not {name!r}")
    return expression(nw.col(*names))


if TYPE_CHECKING:
    from narwhals import lit, when
else:

    def lit(value, dtype=None):
        """A constant, as an expression that has this value in each row.

        Args:
            value: The value.
            dtype: Its type, by default that of the value.

        Example, with the `plays` of `bl.Collection`:
            >>> plays.select(game=bl.lit("chess")).collect()["game"].to_list()
            ['chess', 'chess', 'chess']
        """
        return expression(nw.lit(value, dtype))

    def when(*conditions):
        """A choice by row: `bl.when(condition).then(value).otherwise(other)`, in which `.when(...)` adds further cases.

        Without `otherwise`, the other rows have a null.

        Args:
            conditions: Boolean expressions, all of which must hold.

        Example, with the `plays` of `bl.Collection`:
            >>> size = bl.when(bl.col("points") > 3).then(bl.lit("big")).otherwise(bl.lit("small"))
            >>> plays.select(size=size).collect()["size"].to_list()
            ['small', 'big', 'small']
        """
        return When(nw.when(*conditions))


class When:
    """A choice that waits for its next value. Its expressions are of the class of all others, since Python asks a
    subclass first for the result of a comparison, whose name is that of the left side.
    """

    def __init__(self, begun: Any) -> None:
        self._begun = begun

    def then(self, value: Any) -> nw.Expr:
        """Returns the choice with this value for the rows of the condition before."""
        then = self._begun.then(value)
        made: Any = expression(then)
        made.otherwise, made.when = partial(_otherwise, then), partial(_when, then)  # which can be pickled
        return made  # type: ignore[no-any-return]


def _otherwise(then: Any, value: Any) -> nw.Expr:
    return expression(then.otherwise(value))


def _when(then: Any, *conditions: Any) -> When:
    return When(then.when(*conditions))


def _read(column: str) -> nw.Expr:
    return col(column).alias(column.removeprefix(RESERVED_PREFIX))


def _moment(column: str) -> nw.Expr:
    # The alias must be the plain name of the column: `tree` recognizes these expressions by it, and it names
    # the output.
    return col(column).cast(nw.Datetime("us", "UTC")).alias(column.removeprefix(RESERVED_PREFIX))


def event_time() -> nw.Expr:
    """The event time of the row, as Datetime in UTC; after a grouping, the timestamp of the pane.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.select(minute=bl.event_time().dt.minute()).collect()["minute"].to_list()
        [0, 0, 1]
    """
    return _moment(EVENT_TIME)


def window_start() -> nw.Expr:
    """The first instant of the row's window, as Datetime in UTC; only after `window_into`.

    The global window begins at the least representable time, which neither polars nor Python can format.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.select(minute=bl.window_start().dt.minute()).collect()["minute"].to_list()
        [0, 0, 1]
    """
    return _moment(WINDOW_START)


def window_end() -> nw.Expr:
    """The end of the row's window, which the window does not contain, as Datetime in UTC.

    The global window ends after all others, at a time that neither polars nor Python can format.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.select(minute=bl.window_end().dt.minute()).collect()["minute"].to_list()
        [1, 1, 2]
    """
    return _moment(WINDOW_END)


def pane_timing() -> nw.Expr:
    """The timing of the pane, as String: "early", "on_time" or "late"; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).select("n", timing=bl.pane_timing()).collect()["timing"].to_list()
        ['early', 'on_time']
    """
    return _read(PANE_TIMING)


def pane_index() -> nw.Expr:
    """The number of earlier panes of the window, as Int64; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).select("n", index=bl.pane_index()).collect()["index"].to_list()
        [0, 1]
    """
    return _read(PANE_INDEX)


def pane_nonspeculative_index() -> nw.Expr:
    """The number of earlier panes of the window that were not early, as Int64; -1 in an early pane.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> counts = days.aggregate(n=bl.count()).select("n", index=bl.pane_nonspeculative_index())
        >>> counts.collect()["index"].to_list()
        [-1, 0]
    """
    return _read(PANE_NONSPECULATIVE_INDEX)


def pane_first() -> nw.Expr:
    """True for the first pane of a window; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).filter(bl.pane_first()).collect()["n"].to_list()
        [2]
    """
    return _read(PANE_FIRST)


def pane_last() -> nw.Expr:
    """True for the last pane of a window, after which the window is closed; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).filter(bl.pane_last()).collect()["n"].to_list()
        [1]
    """
    return _read(PANE_LAST)


def pane_retracted() -> nw.Expr:
    """True for a pane that retracts an earlier one; only after a grouping whose accumulation is RETRACTING.

    Example, with the `plays` of `bl.Collection`:
        >>> early = bl.AfterWatermark(early=bl.AfterCount(2))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=early, accumulation="retracting")
        >>> days.aggregate(n=bl.count()).collect()[["n", "pane_retracted"]].rows()
        [(2, False), (2, True), (3, False)]
    """
    return _read(PANE_RETRACTED)


def pane_drained() -> nw.Expr:
    """True for a pane of a window that a drain closed before the watermark passed its end; only after a grouping.

    Such a window may lack elements, whatever its timing. A run without a checkpoint reads its input to the end, and its
    panes are not drained.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> minutes.select("n", drained=bl.pane_drained()).write("out", result := bl.Memory())
        <Collection ...>
        >>> p.run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
        <LiveRun of 'scores': 4 batches>
        >>> result.frame().sort("window_start")["drained"].to_list()
        [False, True]
    """
    return _read(PANE_DRAINED)


def pane_cause() -> nw.Expr:
    """Why the window emitted the pane, as String; only after a grouping.

    | cause     | the pane was emitted                                                     |
    |-----------|--------------------------------------------------------------------------|
    | "early"   | by an early trigger, before the watermark passed the end of the window   |
    | "over"    | because the watermark passed the end of the window; the on-time pane     |
    | "late"    | by a late trigger                                                        |
    | "closing" | because the window was removed, with its last late elements              |
    | "drained" | because a drain ended the run before the watermark passed the end        |

    A pane that retracts an earlier one has its cause.

    Example, with the `plays` of `bl.Collection`:
        >>> early = bl.AfterWatermark(early=bl.AfterCount(2))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=early).aggregate(n=bl.count())
        >>> days.select("n", cause=bl.pane_cause()).collect()["cause"].to_list()
        ['early', 'over']
    """
    return _read(PANE_CAUSE)


def pane_complete() -> nw.Expr:
    """The expected share of the rows of the window that sources have read, as Float64; only after a grouping.

    It is an estimate from the lateness of earlier rows, and less than 1; or exactly 1.0 if it is proved that no row of
    the window can be missing: the watermark is perfect, or the input has been read to its end, and no row was ever
    late. It is null before two batches have been read, and in a global window that is not proved.
    [Completeness](../completeness.md) has the definition. A pane that retracts an earlier one has its share.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> minutes.select(complete=bl.pane_complete()).collect()["complete"].to_list()
        [0.66..., 1.0]
    """
    return _read(PANE_COMPLETE)


def pane_watermark() -> nw.Expr:
    """The input watermark with which the pane was emitted, as Datetime in UTC; only after a grouping.

    It is null before the first watermark and at the end of the input.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> minutes.select(at=bl.pane_watermark()).collect()["at"].dt.minute().to_list()
        [1, None]
    """
    return _moment(PANE_WATERMARK)


def timestamp_of(column: str) -> TimestampOf:
    """A timestamp combiner: a pane has the event time of the elements for which a Boolean column is true.

    If there are several such elements, the earliest that was not late is used. If there are none, the pane has the end
    of the window as its event time.

    Raises:
        WrongType: `column` is no name.

    Example, with the `plays` of `bl.Collection`:
        >>> marked = plays.with_columns(best=bl.col("points") == 5)
        >>> days = marked.window_into(bl.FixedWindows("1d"), timestamp_combiner=bl.timestamp_of("best"))
        >>> str(days.aggregate(n=bl.count()).collect()["event_time"].item())
        '2026-01-31 12:00:40+00:00'
    """
    if not isinstance(column, str):
        raise WrongType(
            f"timestamp_of takes the name of a Boolean column, not {column!r}; compute it with with_columns(...) before"
        )
    return TimestampOf(column)


def regexp_extract(column: str | nw.Expr, pattern: str, group: int = 1) -> nw.Expr:
    """The text of a group in the first match of a regular expression, as String; null without a match.

    Args:
        column: A column or an expression.
        pattern: A pattern in the syntax of [Rust's regex](https://docs.rs/regex/latest/regex/#syntax), which all
            functions of text use: it has no look-around and no backreferences.
        group: The number of the group; 0 is the whole match.

    Raises:
        WrongType: `pattern` is no text, or `group` no number.
        PlanError: The pattern is invalid, or has no such group.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.select("user", middle=bl.regexp_extract("user", "^a(.)")).collect()[["user", "middle"]].rows()
        [('ada', 'd'), ('bob', None), ('ada', 'd')]
    """
    if not isinstance(column, str | nw.Expr):
        raise WrongType(f"regexp_extract takes a column or an expression, not {column!r}")
    if not isinstance(pattern, str):
        raise WrongType(f"regexp_extract takes a pattern as a string, not {pattern!r}")
    if not isinstance(group, int) or isinstance(group, bool):
        raise WrongType(f"regexp_extract takes the number of a group, not {group!r}")
    groups = _groups(pattern)
    if not 0 <= group <= groups:
        has = f"it has {groups or 'none'}, and group 0 is the whole match"
        raise PlanError(f"regexp_extract: {pattern!r} has no group {group}; {has}")
    return extracted(nw.col(column) if isinstance(column, str) else column, pattern, group)


def _groups(pattern: str) -> int:
    """Returns the number of groups of a pattern. Polars counts them, since it also evaluates the pattern."""
    try:
        found = pl.Series([""]).str.extract_groups(pattern)
    except ComputeError as error:
        reason = str(error).split("\n\n")[0]
        raise PlanError(f"regexp_extract: the pattern {pattern!r} cannot be read: {reason}") from error
    return len(found.struct.fields)
