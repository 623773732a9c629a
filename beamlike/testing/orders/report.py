"""The report of an order of arrival that changes a final result, with a test to paste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from beamlike.errors import listed
from beamlike.logical.node import Node, inputs_first
from beamlike.rows.type_text import dtype_as_python
from beamlike.steps.base import Step
from beamlike.system.texts import python_names, python_value
from beamlike.testing.orders.arrivals import Arrivals, Bundle
from beamlike.testing.orders.finals import Finals

_MOST: Final = 5
_USED: Final = (
    "Decimal",
    "assert_panes",
    "bl",
    "datetime",
    "inf",
    "nan",
    "out",
    "pipeline",
    "pl",
    "zoneinfo",
)


@attrs.frozen(eq=False)
class Difference:
    """The final rows of the first stage or sink that differ: by event time, and in another order."""

    node: Node
    expected: Finals
    found: Finals


def report(
    difference: Difference,
    arrivals: Mapping[str, Arrivals],
    order: Mapping[str, Sequence[Bundle]],
    course: str,
) -> str:
    """Returns the message for an order that changes a final result. `course` says how it was played, if specially."""
    name = difference.node.name
    return "\n".join(
        [
            f"a final result depends on the order of arrival, first in step {name!r}",
            *_rows("by event time only:", difference.expected - difference.found),
            *_rows("in this order only:", difference.found - difference.expected),
            *([f"  {course}"] if course else []),
            "",
            *_test(arrivals, order),
        ]
    )


def impurity(difference: Difference) -> str:
    """Returns the message for a pipeline whose results differ between two runs of the same order."""
    name = difference.node.name
    python = [
        one.name
        for one in inputs_first(difference.node)
        if isinstance(one.origin, Step) and one.origin.python
    ]
    functions = f"; functions are called in {listed(map(repr, python))}" if python else ""
    return "\n".join(
        [
            f"two runs of the same rows in the same order differ, first in step {name!r}: a function before it gives "
            f"other results for the same rows, such as one that keeps a count or reads a clock{functions}",
            *_rows("in the first run only: ", difference.expected - difference.found),
            *_rows("in the second run only:", difference.found - difference.expected),
        ]
    )


def _rows(title: str, rows: Finals) -> Iterator[str]:
    shown = sorted(rows, key=repr)
    for row in shown[:_MOST]:
        values = ", ".join(f"{name}={_text(value)}" for name, value in row)
        yield f"  {title} {values}"
    if len(shown) > _MOST:
        yield f"  {title} {len(shown) - _MOST} more"


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _test(arrivals: Mapping[str, Arrivals], order: Mapping[str, Sequence[Bundle]]) -> Iterator[str]:
    """Yields the lines of a test that plays this order."""
    yield "def test_the_order_of_arrival(pipeline):  # a function of the sources, which writes to bl.Memory"
    variables = python_names(order, _USED, "source")
    for name, bundles in order.items():
        rows, variable = arrivals[name].rows, variables[name]
        schema = ", ".join(f"{column!r}: {dtype_as_python(dtype)}" for column, dtype in rows.schema.items())
        yield f"    {variable} = bl.TestStream({{{schema}}})"
        for bundle in bundles:
            yield f"    {variable} = {variable}.add_elements({python_value(rows[list(bundle)].to_dicts())})"
    yield f"    out = pipeline({', '.join(variables.values())})"
    yield "    assert_panes(out, [...])  # the rows that are right"
