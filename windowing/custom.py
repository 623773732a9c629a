"""A user's own windows in Python: slow, with the interface of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from reprlib import repr as brief
from typing import Any, ClassVar, Final, Self

import polars as pl

from windowing.columns import EVENT_TIME, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.python_rows import Failed, for_each
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import RUN, Frame, WindowFn, begins_key

Bounds = tuple[int, int]
"""Start and end of a window, in microseconds."""

_FUNCTIONS: Final = ("assign_windows", "merge_windows", "previous_end")
_ALIKE: Final = 0.85
"""The similarity to one of these names from which on a name is misspelt: `merge_window` is, `make_windows` is not."""

_KEY: Final = "__key"
_ROW, _ELEMENT, _PLACE = "__row", "__element", "__place"
_RESULT_START, _RESULT_END = "__result_start", "__result_end"
_RESULT: Final = (_RESULT_START, _RESULT_END)


class CustomWindows(WindowFn):
    """Windows that a user's own functions compute: subclass it, as a plain class or as an attrs one.

    `columns` names the columns of `row` that `assign_windows` reads. A class with `merge_windows` has windows that
    merge, per key. Windows are `(start, end)` in microseconds, `[start, end)`; a window that extends beyond the limits
    of time ends there. Both functions must return the same for the same arguments. A row on which `assign_windows`
    raises, or for which it returns anything else, is a dead letter of `window_into`; if `merge_windows` raises, the run
    fails.

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
        """Returns the windows of an element, which end after its time: none, one, or, if they do not merge, several."""
        raise NotImplementedError(f"{type(self).__name__} must define assign_windows(self, time, row)")

    def merge_windows(self, windows: list[Bounds]) -> Iterable[tuple[Iterable[Bounds], Bounds]]:
        """Merges the windows of a key, which are in order: yields `(parts, result)` for those that become one window.

        No window is part of two results. A result is one of its parts, or a window that does not exist.
        """
        raise NotImplementedError

    def previous_end(self, window: Bounds) -> int | None:
        """Returns the end of the previous window that may reach into this one, in microseconds; None if there is none.

        No pane of this window has an earlier time, so that it does not hold back the previous window. By default it is
        the latest end, before its own, of the windows that an element is in with it. That is right if windows follow
        each other, as sliding ones do; override it if some are inside of others, or if not all elements are in all of
        them. For days and the hours in them:

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
                f"{cls.__name__}: {taken[0]} says how built-in windows lie; give yours another name"
            )
        _require_no_misspelling(cls)
        columns: object = cls.columns
        if isinstance(columns, str):
            raise TypeError(f"{cls.__name__}: columns must be a tuple of names: ({columns!r},)")

    # A plain subclass has attributes that attrs knows nothing of.

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
        """The rows with all windows of each: window start and end are lists, null if there are none.

        `failed` is called for a row on which the user's function raises, or for which it returns anything else.
        """
        rows = frame.select(EVENT_TIME, *self.columns)
        windows: list[list[Bounds]] = for_each(
            rows, lambda row: _windows_of(self, row.pop(EVENT_TIME), row), failed, []
        )
        return frame.with_columns(_lists(windows))

    def assign(self, frame: Frame) -> Frame:
        """A row per window of each element, in the order in which the user's function returns them.

        Adds the end of the previous window, in `__previous_end`, if it follows from an element's other windows.
        """
        if isinstance(frame, pl.DataFrame):
            return spread(self, self.windows_of(frame, _fail))
        # An expression would lose the class and the notes of the user's exception.
        return frame.map_batches(
            self.assign,
            schema={**frame.collect_schema(), **dict.fromkeys(assigned_columns(self), pl.Int64())},
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            streamable=True,
        )

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        """The ends that `previous_end` returns, or those that were found when windows were assigned."""
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
        """Rows of windows with one result are a run, and so are those of a window that merges with none."""
        window = [_KEY, *WINDOW_COLUMNS]
        ordered = rows.sort(*keys, *WINDOW_COLUMNS, maintain_order=True)
        ordered = ordered.with_columns(begins_key(keys).cum_sum().alias(_KEY))
        results = _results(self, ordered.select(window).unique(maintain_order=True))
        # Two results of a key are never alike.
        run = [_KEY, *_RESULT]
        merged = ordered.join(results, on=window, how="left", maintain_order="left")
        merged = merged.sort(run, maintain_order=True)
        return merged.with_columns((pl.struct(run).rle_id() + 1).alias(RUN)).drop(_KEY)

    def run_bounds(self) -> dict[str, pl.Expr]:
        """The result of the merge, which need not cover its parts."""
        return {WINDOW_START: pl.col(_RESULT_START).first(), WINDOW_END: pl.col(_RESULT_END).first()}


def _require_no_misspelling(owner: type[CustomWindows]) -> None:
    """Raises `TypeError` for a function whose name is almost that of a called one; helpers may begin with `_`."""
    for name, value in vars(owner).items():
        if name.startswith("_") or hasattr(CustomWindows, name) or not callable(value):
            continue
        for meant in get_close_matches(name, _FUNCTIONS, n=1, cutoff=_ALIKE):
            if getattr(owner, meant) is getattr(CustomWindows, meant):
                raise TypeError(f"{owner.__name__}: {name} is never called; did you mean {meant!r}?")


def assigned_columns(windows: WindowFn) -> tuple[str, ...]:
    """The columns that are added to an element with its windows."""
    if not isinstance(windows, CustomWindows) or windows.merging or _says_previous_end(type(windows)):
        return WINDOW_COLUMNS
    return (*WINDOW_COLUMNS, PREVIOUS_END)


def _says_previous_end(owner: type[CustomWindows]) -> bool:
    return owner.previous_end is not CustomWindows.previous_end


def spread(windows: CustomWindows, frame: Frame) -> Frame:
    """A row per (element, window) of rows with all windows of each (`CustomWindows.windows_of`)."""
    inside = frame.filter(pl.col(WINDOW_START).is_not_null())
    if PREVIOUS_END not in assigned_columns(windows):
        return inside.explode(WINDOW_COLUMNS)
    return _with_previous_ends(inside.with_row_index(_ELEMENT).explode(WINDOW_COLUMNS)).drop(_ELEMENT)


def _with_previous_ends(frame: Frame) -> Frame:
    """Rows of elements, numbered, with the latest end before their own in the rows of the same element."""
    element, end = pl.col(_ELEMENT), pl.col(WINDOW_END)
    before = pl.when(element != element.shift()).then(MIN_TIME).when(end != end.shift()).then(end.shift())
    ordered = frame.with_row_index(_PLACE).sort(_ELEMENT, WINDOW_END)
    # What is left null has the end of the row before it, and so what that has.
    found = ordered.with_columns(before.forward_fill().fill_null(MIN_TIME).alias(PREVIOUS_END))
    return found.sort(_PLACE).drop(_PLACE)


def _lists(windows: list[list[Bounds]]) -> list[pl.Series]:
    """Starts and ends of the windows of each row; a series of Python lists would take ten times as long."""
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
    asked = f"{type(owner).__name__}.assign_windows at {time}"
    given = _listed(asked, "windows (start, end)", owner.assign_windows, time, row)
    windows = [_window(bounds, asked) for bounds in given]
    for window in windows:
        if window[1] <= time:
            raise ValueError(f"{asked} gave the window {window}; expected an end after that time")
    distinct = list(dict.fromkeys(windows))
    if owner.merging and len(distinct) > 1:
        # If these merged, the element would count twice: the windows of a bundle no longer know their elements.
        raise ValueError(
            f"{asked} gave {distinct}; expected at most one window, as windows of this class merge"
        )
    return distinct


def _results(owner: CustomWindows, windows: pl.DataFrame) -> pl.DataFrame:
    """Distinct windows of keys, in order -> the same with the result of each."""
    rows: list[tuple[int, ...]] = []
    for key, starts, ends in windows.group_by(_KEY, maintain_order=True).agg(*WINDOW_COLUMNS).iter_rows():
        results = _merged(owner, list(zip(starts, ends, strict=True)))
        rows += [(key, *window, *result) for window, result in results.items()]
    return pl.DataFrame(rows, {**windows.schema, **dict.fromkeys(_RESULT, pl.Int64())}, orient="row")


def _merged(owner: CustomWindows, windows: list[Bounds]) -> dict[Bounds, Bounds]:
    """Window -> the window that it becomes."""
    asked = f"{type(owner).__name__}.merge_windows of {brief(windows)}"
    into = {window: window for window in windows}
    merged: set[Bounds] = set()
    results: set[Bounds] = set()
    for merge in _listed(asked, "pairs (parts, result)", owner.merge_windows, list(windows)):
        parts, result = _merge(merge, asked)
        for part in parts:
            if part not in into:
                raise ValueError(f"{asked} gave the part {part}; expected one of these windows")
            if part in merged:
                raise ValueError(f"{asked} gave the part {part} twice; expected parts of one result only")
        if result not in parts and (result in into or result in results):
            raise ValueError(
                f"{asked} gave the result {result} of {brief(list(parts))}; "
                "expected one of these parts or a window that is not there otherwise"
            )
        merged |= parts
        results.add(result)
        into |= dict.fromkeys(parts, result)
    return into


def _merge(merge: object, asked: str) -> tuple[set[Bounds], Bounds]:
    match merge:
        case (parts, result) if isinstance(parts, Iterable):
            windows = {_window(part, asked) for part in parts}
            if windows:
                return windows, _window(result, asked)
    raise ValueError(f"{asked} gave {brief(merge)}; expected (parts, result) with at least one part")


def _window(bounds: object, asked: str) -> Bounds:
    """The window within the limits of time."""
    match bounds:
        case (int(start), int(end)) if not isinstance(start, bool) and not isinstance(end, bool):
            window = (max(start, MIN_TIME), min(end, GLOBAL_WINDOW_END))
            if window[0] < window[1]:
                return window
    raise ValueError(
        f"{asked} gave the window {brief(bounds)}; expected (start, end) in whole microseconds, start < end"
    )


def _previous_end(owner: CustomWindows, window: Bounds) -> int | None:
    asked = f"{type(owner).__name__}.previous_end of {window}"
    try:
        end: object = owner.previous_end(window)
    except Exception as error:
        error.add_note(f"in {asked}")
        raise
    if end is None or (isinstance(end, int) and not isinstance(end, bool) and MIN_TIME <= end < window[1]):
        return end
    raise ValueError(
        f"{asked} gave {brief(end)}; expected whole microseconds before the window's end, or None"
    )


def _listed(asked: str, expected: str, function: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
    """The results of the user's function; its errors get a note with the arguments."""
    try:
        given: object = function(*arguments)
        if isinstance(given, Iterable):
            return list(given)
    except Exception as error:
        error.add_note(f"in {asked}")
        raise
    raise TypeError(f"{asked} gave {given!r}; expected {expected}, if only an empty list")
