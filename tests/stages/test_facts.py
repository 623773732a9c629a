"""Values as plain data, and back by the types of their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from stages.facts import SPARSE, from_facts, from_json, to_facts, to_json
from stages.progress.inputs import Inputs
from stages.progress.splits import SourceState, Split


@attrs.frozen
class Part:
    shares: Mapping[int, int]
    plain: dict[str, Any] = attrs.field(factory=dict)
    extra: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)


@attrs.frozen
class Whole:
    parts: Mapping[str, Part]
    first: Part | None = None


@attrs.frozen
class Another:
    names: tuple[str, ...]


WHOLE = Whole({"b": Part({33: 1}, {"any": [1, {"x": 2.5}]}), "a": Part({}, extra=("y",))}, Part({1: 2}))


def test_a_class_is_its_fields_by_name_and_is_read_back_from_json() -> None:
    assert to_facts(WHOLE)["parts"]["a"] == {"shares": {}, "plain": {}, "extra": ["y"]}
    assert from_json(Whole, to_json(WHOLE)) == WHOLE


def test_a_sparse_field_is_left_out_where_it_has_its_default() -> None:
    assert to_facts(Part({33: 1})) == {"shares": {33: 1}, "plain": {}}


def test_equal_values_give_the_same_bytes_in_order() -> None:
    turned = attrs.evolve(WHOLE, parts=dict(reversed(WHOLE.parts.items())))
    assert to_json(turned, ordered=True) == to_json(WHOLE, ordered=True)
    assert to_json(turned) != to_json(WHOLE)


def test_facts_that_lack_a_field_have_its_default_and_unknown_ones_are_passed_over() -> None:
    assert from_facts(Whole, {"parts": {"a": {"shares": {"5": 6}, "new": 1}}}) == Whole({"a": Part({5: 6})})


@pytest.mark.parametrize("value", [WHOLE, Another(("x", "y"))])
def test_a_union_is_told_apart_by_the_names_of_the_fields(value: Whole | Another) -> None:
    found: Any = from_json(Whole | Another, to_json(value))  # type: ignore[arg-type]
    assert found == value


@pytest.mark.parametrize(
    "facts", ["text", 5, None, [], {}, {"parts": 5}, {"parts": {"a": {"shares": {"x": 1}}}}]
)
def test_facts_of_something_else_are_refused(facts: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        from_facts(Whole, facts)


def test_what_a_shard_kept_of_upstream_before_there_were_all_of_its_fields_is_read() -> None:
    split = {"watermark": 1, "percentiles": {"33": 4}, "spoke": None, "state": {"newest": 3}, "lateness": {}}
    source = {"watermark": 1, "percentiles": {"33": 4}, "splits": {"a": split}, "awake": 1, "moved": 2}
    report = {"watermark": 5, "percentiles": {"33": 6}, "idle": True}
    text = json.dumps({"sources": {"s": source}, "reports": {"r": report}, "now": 7, "times": {"s": 7}})
    inputs = from_json(Inputs, text)
    assert inputs.sources["s"] == SourceState(1, {33: 4}, {"a": Split(1, {33: 4}, None, {"newest": 3})}, 1, 2)
    assert inputs.reports["r"].percentiles == {33: 6}
    assert (inputs.times, inputs.percentiles) == ({"s": 7}, {})
