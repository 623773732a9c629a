"""A user-defined aggregate equals plain Python over a window's values, and its mistakes are reported."""

from __future__ import annotations

from datetime import date
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.combine_fn import Combine, CombineFn
from stages.errors import StepError
from tests.support.aggregated import Elements, law, run, windowings
from tests.support.strategies import us
from windowing import AfterCount, AfterWatermark, FixedWindows, Windowing


class Median(CombineFn):
    """A median that keeps all values; nulls are skipped."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int | None) -> list[int]:
        return accumulator if element is None else [*accumulator, element]

    def merge_accumulators(self, accumulators: list[list[int]]) -> list[int]:
        first, *others = accumulators
        for other in others:
            first += other  # it may change the first in place
        return first

    def extract_output(self, accumulator: list[int]) -> int | None:
        return sorted(accumulator)[len(accumulator) // 2] if accumulator else None


integers = st.lists(st.tuples(st.none() | st.integers(-9, 9), st.integers(0, 5)), max_size=4)


@law
@given(st.lists(integers, min_size=1, max_size=4).filter(any), windowings)
def test_a_users_aggregate_is_that_of_plain_python(bundles: list[Elements], windowing: Windowing) -> None:
    combine = Combine(Median(), "v", pl.Int64())
    known = sorted(value for bundle in bundles for value, _ in bundle if value is not None)
    wanted = known[len(known) // 2] if known else None
    assert run({"median": combine}, pl.Int64(), bundles, windowing) == [{"median": wanted}]


def test_a_users_aggregate_of_nothing_is_that_of_a_new_accumulator() -> None:
    class Size(Median):
        def extract_output(self, accumulator: list[int]) -> int:
            return len(accumulator)

    windowing = Windowing(FixedWindows(us(10)), AfterWatermark(early=AfterCount(1)))
    panes = run({"size": Combine(Size(), "v", pl.Int64())}, pl.Int64(), [[(7, 1)]], windowing)
    assert panes == [{"size": 1}, {"size": 0}]


def test_a_users_aggregate_takes_and_gives_any_type() -> None:
    class Days(Median):
        def add_input(self, accumulator: Any, element: Any) -> Any:
            return [*accumulator, element["day"].isoformat()]

        def extract_output(self, accumulator: Any) -> Any:
            return sorted(accumulator)

    rows: Elements = [({"day": date(2026, 1, 2)}, 1), ({"day": date(2026, 1, 1)}, 2)]
    dtype = pl.Struct({"day": pl.Date()})
    panes = run(
        {"d": Combine(Days(), "v", pl.List(pl.String()))}, dtype, [rows], Windowing(FixedWindows(us(9)))
    )
    assert panes == [{"d": ["2026-01-01", "2026-01-02"]}]


@pytest.mark.parametrize("method", ["create_accumulator", "merge_accumulators", "extract_output"])
def test_an_error_that_no_row_is_to_blame_for_keeps_its_type_and_says_in_which_step(method: str) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("the user's")

    combine = Combine(type("Failing", (Median,), {method: fail})(), "v", pl.Int64())
    with pytest.raises(ZeroDivisionError, match="the user's") as caught:
        run({"c": combine}, pl.Int64(), [[(1, 1), (2, 1)]], Windowing(FixedWindows(us(10))))
    assert caught.value.__notes__ == ["in step 'stage'"]


@pytest.mark.parametrize(
    ("given", "shown"), [("many", "'many', of type str,"), (2**64, "18446744073709551616, of type int,")]
)
def test_a_result_of_another_type_is_an_error_that_names_step_function_and_value(
    given: object, shown: str
) -> None:
    class Wrong(Median):
        def extract_output(self, accumulator: Any) -> Any:
            return given

    with pytest.raises(StepError, match=f"step 'stage': extract_output of Wrong gave {shown} .* type Int64$"):
        run({"c": Combine(Wrong(), "v", pl.Int64())}, pl.Int64(), [[(1, 1)]], Windowing(FixedWindows(us(10))))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            3,
            "combine: 3 is no CombineFn: it lacks create_accumulator, add_input, merge_accumulators, extract_output",
        ),
        (sum, "is no CombineFn"),
        (Median, r"combine: Median is a class; make one of it: Median\(\)"),
    ],
)
def test_what_is_no_combine_function_is_refused(fn: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Combine(fn, "v", pl.Int64())
