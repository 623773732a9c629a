"""The name of a comparison is that of its left side, whatever the sides are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import WrongType


def columns(of: Any) -> dict[str, list[Any]]:
    read = bl.Pipeline("p").read("r", bl.Rows([{"x": 4, "b": 10}, {"x": 30, "b": 20}]))
    return dict(read.select(of).collect().to_dict(as_series=False))


b, x = bl.col("b"), bl.col("x")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (b > x, {"b": [True, False]}),
        (bl.lit(5) < x, {"literal": [False, True]}),
        (x > bl.lit(5), {"x": [False, True]}),
        (bl.when(b > 0).then(b).otherwise(0) > x, {"b": [True, False]}),
        (bl.when(b > 0).then(b) > x, {"b": [True, False]}),
        (x < bl.when(b > 0).then(b), {"x": [True, False]}),
        (bl.when(x > 5).then(b).when(x > 3).then(x).otherwise(0) == x, {"b": [True, False]}),
    ],
)
def test_a_comparison_has_the_name_of_its_left_side(made: Any, expected: dict[str, list[Any]]) -> None:
    assert columns(made) == expected


def test_a_choice_survives_plain_pickle() -> None:
    begun = pickle.loads(pickle.dumps(bl.when(x > 5).then(b)))
    assert columns(begun) == {"b": [None, 20]}
    assert columns(begun.otherwise(0)) == {"b": [0, 20]}


def test_values_and_choices_explain_their_misuse() -> None:
    for made in (bl.lit(True), bl.when(x > 1).then(b > 1)):
        with pytest.raises(WrongType, match="write & for and"):
            assert not made
        assert not callable(made)
