"""Generated SQL expressions have the values and types of DuckDB, except for the listed kinds of differences."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.beamlike.spec.oracle.columns import COLUMNS, database, table
from tests.beamlike.spec.oracle.compared import REFUSED, Both, Result
from tests.beamlike.spec.oracle.generated import FORMS, expressions

LISTED: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("differences.yaml").read_text())


@cache
def both() -> Both:
    frame = table()
    return Both(frame, database(frame))


def is_listed(kind: str) -> bool:
    """True if a pattern of the list matches; `*` is also the name of a product."""
    patterns = (pattern for entry in LISTED for pattern in entry["kinds"])
    return any(fnmatchcase(kind, f"[*]{one[1:]}" if one.startswith("*(") else one) for one in patterns)


def differing(seed: int, count: int) -> list[str]:
    """Returns the differences between expressions here and in DuckDB that are not listed."""
    found = [(part, both().difference(part)) for part in expressions(seed, count)()]
    return [
        f"{one.kind}: {one.part.text()} is {one.here!r} here and {one.there!r} in DuckDB, in {part.text()}"
        for part, one in found
        if one is not None and not is_listed(one.kind)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_expressions_have_the_values_and_types_of_duckdb(seed: int) -> None:
    assert not differing(seed, 200)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_expressions_have_the_values_and_types_of_duckdb(seed: int) -> None:
    assert not differing(seed, 2_500)


def shown(result: Result) -> str:
    """Returns the result of an example as text: that of the first row, or that it is refused."""
    if result.kind == REFUSED:
        return REFUSED
    value = result.values[0]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry["example"])
def test_a_listed_difference_is_one(entry: dict[str, Any]) -> None:
    text = entry["example"]
    assert (shown(both().here(text)), shown(both().there(text))) == (entry["here"], entry["duckdb"])
    assert entry["reason"]


def test_every_type_and_every_function_is_drawn() -> None:
    drawn = [part for seed in range(4) for part in expressions(seed, len(FORMS))()]
    texts = " ".join(part.text() for part in drawn)
    assert {form[0] for form in FORMS} <= {part.name for part in drawn}
    assert not [name for name in COLUMNS if name != "none" and name not in texts]
    assert len(COLUMNS) == 29
