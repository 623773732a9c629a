"""Invalid user-defined windows: each error names the class, the returned value, and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import polars as pl
import pytest

from tests.windowing.test_custom import Bounds, rows_of
from windowing import (
    CustomWindows,
    WindowFn,
)
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.time import GLOBAL_WINDOW_END

# Refusals


def assign(windows: WindowFn, at: list[int], lazy: bool) -> pl.DataFrame:
    frame = pl.DataFrame({EVENT_TIME: at})
    return windows.assign(frame.lazy()).collect() if lazy else windows.assign(frame)


def custom(assigned: Any = None, merges: Any = None) -> CustomWindows:
    """Returns windows whose functions return these values."""

    class Odd(CustomWindows):
        def assign_windows(self, time: int, row: dict[str, Any]) -> Any:
            return assigned

    class OddMerging(Odd):
        def merge_windows(self, windows: list[Bounds]) -> Any:
            return merges

    return OddMerging() if merges is not None else Odd()


@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        (None, r"gave None; expected windows \(start, end\), if only an empty list"),
        (7, r"gave 7; expected windows \(start, end\)"),
        ((5, 9), r"gave the window 5; expected \(start, end\) in whole microseconds, start < end"),
        ([(9, 5)], r"gave the window \(9, 5\); expected .* start < end"),
        ([(5, 5)], r"gave the window \(5, 5\); expected"),
        ([(5, 9.0)], r"gave the window \(5, 9\.0\); expected"),
        ([(False, True)], r"gave the window \(False, True\); expected"),
        ([(1, 2, 3)], r"gave the window \(1, 2, 3\); expected"),
        ([(GLOBAL_WINDOW_END, 10**20)], "gave the window .*; expected"),
        ([(5, 9), (0, 5)], r"gave the window \(0, 5\); expected an end after that time"),
        (["ab"], "gave the window 'ab'; expected"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_no_window_is_named_with_the_time(assigned: Any, message: str, lazy: bool) -> None:
    with pytest.raises((TypeError, ValueError), match=r"Odd\.assign_windows at 5 " + message):
        assign(custom(assigned), [5], lazy)


A, B, C = (0, 5), (3, 8), (20, 25)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (5, r"gave 5; expected pairs \(parts, result\)"),
        ([A], r"gave \(0, 5\); expected \(parts, result\) with at least one part"),
        ([([], A)], r"gave \(\[\], \(0, 5\)\); expected \(parts, result\) with at least one part"),
        ([([A, (3, 9)], A)], r"gave the part \(3, 9\); expected one of these windows"),
        ([([A], A), ([A, B], B)], r"gave the part \(0, 5\) twice; expected parts of one result only"),
        ([([A, B], C)], r"gave the result \(20, 25\) of .*; expected one of these parts or a window that is"),
        ([([A], (0, 9)), ([B], (0, 9))], r"gave the result \(0, 9\) of \[\(3, 8\)\]; expected"),
        ([([A, B], (9, 2))], r"gave the window \(9, 2\); expected"),
        ([([A, B], None)], "gave the window None; expected"),
        ([([A, 3], A)], "gave the window 3; expected"),
    ],
)
def test_what_is_no_merge_is_named_with_the_windows(merges: Any, message: str) -> None:
    rows = rows_of([("a", *A), ("a", *B), ("a", *C)])
    asked = r"OddMerging\.merge_windows of \[\(0, 5\), \(3, 8\), \(20, 25\)\] "
    with pytest.raises((TypeError, ValueError), match=asked + message):
        custom([], merges).merge(rows, ["k"])


class TwoPartError(Exception):
    """An exception that cannot be rebuilt from its message alone."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)


@pytest.mark.parametrize("lazy", [False, True])
def test_an_error_of_the_function_says_where_it_was(lazy: bool) -> None:
    class Failing(CustomWindows):
        def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
            yield (time, time + 1)
            raise TwoPartError("none today", 3)

    with pytest.raises(TwoPartError, match="none today") as caught:
        assign(Failing(), [5], lazy)
    assert caught.value.__notes__ == ["in Failing.assign_windows at 5"]


def test_a_class_without_assign_windows_says_so() -> None:
    class Empty(CustomWindows):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define assign_windows\(self, time, row\)"):
        Empty().assign(pl.DataFrame({EVENT_TIME: [5]}))


def test_there_are_no_custom_windows_as_such() -> None:
    with pytest.raises(TypeError, match=r"subclass it and define assign_windows\(self, time, row\)"):
        CustomWindows()
    with pytest.raises(TypeError, match="argument"):
        Twice(5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("merge_window", "merge_windows"),
        ("mergeWindows", "merge_windows"),
        ("asign_windows", "assign_windows"),
        ("previous_ends", "previous_end"),
    ],
)
def test_a_function_that_is_misspelt_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"Own: {name} is never called; did you mean '{meant}'"):
        type("Own", (CustomWindows,), {name: lambda self, windows: []})
    both = type("Own", (CustomWindows,), {name: lambda self: [], meant: lambda self, *given: []})
    assert issubclass(both, CustomWindows)


@pytest.mark.parametrize("name", ["make_windows", "_merge_window", "all_windows", "assign"])
def test_other_functions_are_the_users_own(name: str) -> None:
    type("Own", (CustomWindows,), {name: lambda self: []})


def test_columns_are_several() -> None:
    with pytest.raises(TypeError, match=r"Wrong: columns must be a tuple of names: \('expires',\)"):

        class Wrong(CustomWindows):
            columns = "expires"  # type: ignore[assignment]


def test_a_name_that_says_how_windows_lie_is_not_free() -> None:
    message = "OwnPeriod: period is an attribute of built-in windows; give yours another name"
    with pytest.raises(TypeError, match=message):

        @attrs.frozen(slots=False)
        class OwnPeriod(CustomWindows):
            period: int


def test_columns_may_be_the_users_choice() -> None:
    @attrs.frozen
    class SizedBy(CustomWindows):
        column: str

        @property
        def columns(self) -> tuple[str, ...]:
            return (self.column,)

        def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
            return [(time, time + row[self.column])]

    assigned = SizedBy("size").assign(pl.DataFrame({EVENT_TIME: [1], "size": [4]}))
    assert assigned.select(WINDOW_COLUMNS).rows() == [(1, 5)]


@pytest.mark.parametrize("said", [7, 8, 2.5, True, "6"])
def test_the_window_before_ends_before_the_window_does(said: object) -> None:
    class Odd(CustomWindows):
        def previous_end(self, window: Bounds) -> Any:
            return said

    placed = pl.DataFrame({"__window_start": [2], "__window_end": [7]})
    expected = (
        rf"Odd.previous_end of \(2, 7\) gave {said!r}; expected whole microseconds before the window's end"
    )
    with pytest.raises(ValueError, match=expected):
        Odd().ends_before(placed)


def test_an_error_of_previous_end_says_for_which_window() -> None:
    class Failing(CustomWindows):
        def previous_end(self, window: Bounds) -> int:
            raise TwoPartError("not known", 3)

    with pytest.raises(TwoPartError, match="not known") as caught:
        Failing().ends_before(pl.DataFrame({"__window_start": [2], "__window_end": [7]}))
    assert caught.value.__notes__ == ["in Failing.previous_end of (2, 7)"]


def test_windows_that_merge_have_none_before_them() -> None:
    with pytest.raises(TypeError, match=r"Both: previous_end is never called where windows merge"):
        type("Both", (Twice,), {"previous_end": lambda self, window: None})


class Twice(CustomWindows):
    """Windows that merge, two for each element."""

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[tuple[int, int]]:
        return [(time, time + 5), (time, time + 10)]

    def merge_windows(
        self, windows: list[tuple[int, int]]
    ) -> list[tuple[list[tuple[int, int]], tuple[int, int]]]:
        return []


def test_an_element_is_in_one_of_the_windows_that_merge() -> None:
    frame = pl.DataFrame({EVENT_TIME: [3]})
    expected = r"Twice.assign_windows at 3 gave \[\(3, 8\), \(3, 13\)\]; expected at most one window"
    with pytest.raises(ValueError, match=expected):
        Twice().assign(frame)
