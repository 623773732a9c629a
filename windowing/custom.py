"""Custom windows: windows that a user's Python functions assign and merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from reprlib import repr as brief
from typing import Any, ClassVar, Final, Self

import polars as pl

from windowing.columns import EVENT_TIME, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.python_rows import Failed, for_each
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import RUN, Frame, WindowFn

Bounds = tuple[int, int]
"""The start and the end of a window (us)."""

_FUNCTIONS: Final = ("assign_windows", "merge_windows", "previous_end")
_ALIKE: Final = 0.85
"""The similarity from which a method's name counts as a misspelling of one of `_FUNCTIONS`.

For example, `merge_window` does, and `make_windows` does not.
"""

_KEY: Final = "__key"
_ROW, _ELEMENT, _PLACE = "__row", "__element", "__place"
_RESULT_START, _RESULT_END = "__result_start", "__result_end"
_RESULT: Final = (_RESULT_START, _RESULT_END)


class CustomWindows(WindowFn):
    """The base class of windows that a user's functions compute. Subclass it as a plain class or an attrs class.

    Define `assign_windows`, and `merge_windows` if windows of a key may merge. The class attribute `columns` has the
    names of the columns that `assign_windows` reads from `row`. A window is `(start, end)` in microseconds, half-open;
    beyond the limits of time it is cut off. Both functions must return the same for the same arguments.

    If `assign_windows` raises for a row, or returns something else, the row is a dead letter of `window_into`. If
    `merge_windows` raises, the run fails.

    Example, with the `plays` of `bl.Collection`:
        >>> class UntilDeadline(bl.CustomWindows):
        ...     columns = ("points",)
        ...
        ...     def assign_windows(self, time, row):
        ...         yield time, time + row["points"] * 1_000_000
        >>> counts = plays.window_into(UntilDeadline()).aggregate(seconds=bl.window_length())
        >>> counts.collect()["seconds"].to_list()
        [3.0, 5.0, 4.0]
    """

    merges_in_parts: ClassVar[bool] = False
    python: ClassVar[bool] = True

    def __new__(cls, *arguments: object, **named: object) -> Self:
        if cls is CustomWindows:
            raise TypeError(
                "CustomWindows has no windows: subclass it and define assign_windows(self, time, row)"
            )
        return super().__new__(cls)

    @property
    def gaps(self) -> bool:
        return True

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        """Returns the windows of an element; several only if windows do not merge. Each must end after `time` (us)."""
        raise NotImplementedError(f"{type(self).__name__} must define assign_windows(self, time, row)")

    def merge_windows(self, windows: list[Bounds]) -> Iterable[tuple[Iterable[Bounds], Bounds]]:
        """Merges the sorted windows of a key. Yields `(parts, result)` for each merge of windows into one.

        A window may be a part of only one result. A result must be one of its parts, or a window that is not in
        `windows`.
        """
        raise NotImplementedError

    def previous_end(self, window: Bounds) -> int | None:
        """Returns the end (us) of the previous window that overlaps with this one; None if there is none.

        Panes of this window get no earlier event time, so that they do not hold the watermark inside the previous
        window. By default, it is found among the other windows of the same element: the latest end before that of this
        window. Override it if some windows are inside others, or if elements are not in all overlapping windows. For
        windows of days and of hours:

            def previous_end(self, window):
                start, end = window
                return end - HOUR if end - start == DAY else None
        """
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.merging = cls.merge_windows is not CustomWindows.merge_windows
        if cls.merging and _says_previous_end(cls):
            raise TypeError(
                f"{cls.__name__}: previous_end is never called where windows merge, as each key has its own; "
                "leave out previous_end or merge_windows"
            )
        own = vars(cls).keys() | vars(cls).get("__annotations__", {}).keys()
        if taken := sorted(own & {"gaps", "period", "span"}):
            raise TypeError(
                f"{cls.__name__}: {taken[0]} is an attribute of built-in windows; give yours another name"
            )
        _require_no_misspelling(cls)
        columns: object = cls.columns
        if isinstance(columns, str):
            raise TypeError(f"{cls.__name__}: columns must be a tuple of names: ({columns!r},)")

    # `WindowFn` is a frozen attrs class. The methods below let a plain subclass set and compare its own attributes.

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def windows_of(self, frame: pl.DataFrame, failed: Failed) -> pl.DataFrame:
        """Adds the windows of each row as lists of starts and ends; null if it has none.

        Calls `failed` for a row for which the user's function raises or returns something else.
        """
        rows = frame.select(EVENT_TIME, *self.columns)
        windows: list[list[Bounds]] = for_each(
            rows, lambda row: _windows_of(self, row.pop(EVENT_TIME), row), failed, []
        )
        return frame.with_columns(_lists(windows))

    def assign(self, frame: Frame) -> Frame:
        """Adds windows: a row for each window of each element, in the order that the user's function returns.

        Also adds `__previous_end`, the end of the previous window, if the user does not define `previous_end`.
        """
        if isinstance(frame, pl.DataFrame):
            return spread(self, self.windows_of(frame, _fail))
        # Not an expression, which would lose the class and the notes of the user's exception.
        return frame.map_batches(
            self.assign,
            schema={**frame.collect_schema(), **dict.fromkeys(assigned_columns(self), pl.Int64())},
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            streamable=True,
        )

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        """Returns the result of the user's `previous_end`, or else the ends that `assign` has found."""
        if _says_previous_end(type(self)):
            return pl.lit(self._ends_said(placed.select(WINDOW_COLUMNS)))
        return pl.col(PREVIOUS_END) if PREVIOUS_END in placed.columns else None

    def _ends_said(self, windows: pl.DataFrame) -> pl.Series:
        distinct = windows.unique()
        said = pl.Series(
            PREVIOUS_END, [_previous_end(self, window) for window in distinct.rows()], pl.Int64()
        )
        joined = windows.join(
            distinct.with_columns(said), on=WINDOW_COLUMNS, how="left", maintain_order="left"
        )
        return joined[PREVIOUS_END]

    def merge(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        from windowing.sweep import begins_key  # imports numpy

        # Windows that merge into the same result are a run; a window that does not merge is its own result.
        window = [_KEY, *WINDOW_COLUMNS]
        ordered = rows.sort(*keys, *WINDOW_COLUMNS, maintain_order=True)
        ordered = ordered.hstack([pl.Series(_KEY, begins_key(ordered, keys), pl.Int64).cum_sum()])
        results = _results(self, ordered.select(window).unique(maintain_order=True))
        # Results of a key are distinct (`_merged` checks it), so a run is identified by key and result.
        run = [_KEY, *_RESULT]
        merged = ordered.join(results, on=window, how="left", maintain_order="left")
        merged = merged.sort(run, maintain_order=True)
        return merged.with_columns((pl.struct(run).rle_id() + 1).alias(RUN)).drop(_KEY)

    def run_bounds(self) -> dict[str, pl.Expr]:
        # The user's result, which need not include all of its parts.
        return {WINDOW_START: pl.col(_RESULT_START).first(), WINDOW_END: pl.col(_RESULT_END).first()}


def _require_no_misspelling(owner: type[CustomWindows]) -> None:
    """Raises `TypeError` for a method whose name looks like a misspelling. Names that begin with `_` are allowed."""
    for name, value in vars(owner).items():
        if name.startswith("_") or hasattr(CustomWindows, name) or not callable(value):
            continue
        for meant in get_close_matches(name, _FUNCTIONS, n=1, cutoff=_ALIKE):
            if getattr(owner, meant) is getattr(CustomWindows, meant):
                raise TypeError(f"{owner.__name__}: {name} is never called; did you mean {meant!r}?")


def assigned_columns(windows: WindowFn) -> tuple[str, ...]:
    """Returns the names of the columns that `assign` adds."""
    if not isinstance(windows, CustomWindows) or windows.merging or _says_previous_end(type(windows)):
        return WINDOW_COLUMNS
    return (*WINDOW_COLUMNS, PREVIOUS_END)


def _says_previous_end(owner: type[CustomWindows]) -> bool:
    return owner.previous_end is not CustomWindows.previous_end


def spread(windows: CustomWindows, frame: Frame) -> Frame:
    """Converts rows with lists of windows, as `CustomWindows.windows_of` returns them, to a row for each window."""
    inside = frame.filter(pl.col(WINDOW_START).is_not_null())
    if PREVIOUS_END not in assigned_columns(windows):
        return inside.explode(WINDOW_COLUMNS)
    return _with_previous_ends(inside.with_row_index(_ELEMENT).explode(WINDOW_COLUMNS)).drop(_ELEMENT)


def _with_previous_ends(frame: Frame) -> Frame:
    """Adds `PREVIOUS_END`: among the windows of the same element, the latest end before the end of the row's window.

    Rows must have the column `_ELEMENT`, the number of their element.
    """
    element, end = pl.col(_ELEMENT), pl.col(WINDOW_END)
    before = pl.when(element != element.shift()).then(MIN_TIME).when(end != end.shift()).then(end.shift())
    ordered = frame.with_row_index(_PLACE).sort(_ELEMENT, WINDOW_END)
    # `before` is null if the end equals that of the row before, so that the previous end is the same, too.
    found = ordered.with_columns(before.forward_fill().fill_null(MIN_TIME).alias(PREVIOUS_END))
    return found.sort(_PLACE).drop(_PLACE)


def _lists(windows: list[list[Bounds]]) -> list[pl.Series]:
    """Converts the windows of each row to columns of lists of starts and ends; null for a row without windows."""
    # Grouping flat columns is ten times as fast as making a column from Python lists.
    each = [window for own in windows for window in own]
    columns = {
        _ROW: [row for row, own in enumerate(windows) for _ in own],
        WINDOW_START: [start for start, _ in each],
        WINDOW_END: [end for _, end in each],
    }
    flat = pl.DataFrame(columns, dict.fromkeys(columns, pl.Int64()))
    found = flat.group_by(_ROW, maintain_order=True).agg(WINDOW_COLUMNS)
    rows = pl.int_range(len(windows), eager=True).alias(_ROW).to_frame()
    return rows.join(found, on=_ROW, how="left", maintain_order="left").drop(_ROW).get_columns()


def _fail(number: int, error: Exception) -> None:
    raise error


def _windows_of(owner: CustomWindows, time: int, row: dict[str, Any]) -> list[Bounds]:
    call = f"{type(owner).__name__}.assign_windows at {time}"
    given = _listed(call, "windows (start, end)", owner.assign_windows, time, row)
    windows = [_window(bounds, call) for bounds in given]
    for window in windows:
        if window[1] <= time:
            raise ValueError(f"{call} gave the window {window}; expected an end after that time")
    distinct = list(dict.fromkeys(windows))
    if owner.merging and len(distinct) > 1:
        # If these windows merged, the element would be counted twice, since accumulators do not know their elements.
        raise ValueError(
            f"{call} gave {distinct}; expected at most one window, as windows of this class merge"
        )
    return distinct


def _results(owner: CustomWindows, windows: pl.DataFrame) -> pl.DataFrame:
    """Merges the windows of each key: adds the result that each window becomes. Windows must be distinct and sorted."""
    rows: list[tuple[int, ...]] = []
    for key, starts, ends in windows.group_by(_KEY, maintain_order=True).agg(*WINDOW_COLUMNS).iter_rows():
        results = _merged(owner, list(zip(starts, ends, strict=True)))
        rows += [(key, *window, *result) for window, result in results.items()]
    return pl.DataFrame(rows, {**windows.schema, **dict.fromkeys(_RESULT, pl.Int64())}, orient="row")


def _merged(owner: CustomWindows, windows: list[Bounds]) -> dict[Bounds, Bounds]:
    """Calls the user's `merge_windows`, checks its results, and maps each window to its result."""
    call = f"{type(owner).__name__}.merge_windows of {brief(windows)}"
    into = {window: window for window in windows}
    merged: set[Bounds] = set()
    results: set[Bounds] = set()
    for merge in _listed(call, "pairs (parts, result)", owner.merge_windows, list(windows)):
        parts, result = _merge(merge, call)
        for part in parts:
            if part not in into:
                raise ValueError(f"{call} gave the part {part}; expected one of these windows")
            if part in merged:
                raise ValueError(f"{call} gave the part {part} twice; expected parts of one result only")
        if result not in parts and (result in into or result in results):
            raise ValueError(
                f"{call} gave the result {result} of {brief(list(parts))}; "
                "expected one of these parts or a window that is not there otherwise"
            )
        merged |= parts
        results.add(result)
        into |= dict.fromkeys(parts, result)
    return into


def _merge(merge: object, call: str) -> tuple[set[Bounds], Bounds]:
    match merge:
        case (parts, result) if isinstance(parts, Iterable):
            windows = {_window(part, call) for part in parts}
            if windows:
                return windows, _window(result, call)
    raise ValueError(f"{call} gave {brief(merge)}; expected (parts, result) with at least one part")


def _window(bounds: object, call: str) -> Bounds:
    """Checks the bounds of a window, and limits them to the range of times."""
    match bounds:
        case (int(start), int(end)) if not isinstance(start, bool) and not isinstance(end, bool):
            window = (max(start, MIN_TIME), min(end, GLOBAL_WINDOW_END))
            if window[0] < window[1]:
                return window
    raise ValueError(
        f"{call} gave the window {brief(bounds)}; expected (start, end) in whole microseconds, start < end"
    )


def _previous_end(owner: CustomWindows, window: Bounds) -> int | None:
    call = f"{type(owner).__name__}.previous_end of {window}"
    try:
        end: object = owner.previous_end(window)
    except Exception as error:
        error.add_note(f"in {call}")
        raise
    if end is None or (isinstance(end, int) and not isinstance(end, bool) and MIN_TIME <= end < window[1]):
        return end
    raise ValueError(
        f"{call} gave {brief(end)}; expected whole microseconds before the window's end, or None"
    )


def _listed(call: str, expected: str, function: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
    """Calls a user's function and returns its results as a list. An error gets a note that names the call, `call`."""
    try:
        given: object = function(*arguments)
        if isinstance(given, Iterable):
            return list(given)
    except Exception as error:
        error.add_note(f"in {call}")
        raise
    raise TypeError(f"{call} gave {given!r}; expected {expected}, if only an empty list")
