"""Rows whose rank is null or NaN: aggregates of chosen rows equal plain Python, for each place of nulls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.ranked import NULLS, ArgMax, ArgMin, Bottom, Nulls, Top
from tests.stages.aggregates.test_chosen import VALUES
from tests.stages.aggregates.test_retractions import played, result
from tests.support.aggregated import law, run_rows, windowings
from windowing.columns import EVENT_TIME

Row = dict[str, Any]

CHOSEN: dict[str, Callable[..., Aggregate]] = {
    "top": partial(Top, "id", 2, by="v"),
    "top with ties": partial(Top, "id", 1, by="v", ties=True),
    "top by two": partial(Top, "id", 3, by=["w", "v"]),
    "top rows": partial(Top, ["v", "id"], 2, by="v"),
    "bottom": partial(Bottom, "id", 2, by="v"),
    "bottom with ties": partial(Bottom, "id", 2, by=["v", "w"], ties=True),
    "most": partial(ArgMax, "id", by="v"),
    "most rows": partial(ArgMax, ["v", "id"], by="v"),
    "least": partial(ArgMin, "id", by=["w", "v"]),
    "least rows": partial(ArgMin, ["w", "id"], by="w"),
}


def place(value: Any, nulls: Nulls) -> tuple[int, Any]:
    """Returns a sort key: NaN is the greatest number, and null has the given place."""
    if value is None:
        return (-1 if nulls == "least" else 2, 0)
    return (1, 0) if value != value else (0, value)


def expected(aggregate: Any, rows: list[Row]) -> Any:
    """Computes an aggregate in plain Python."""
    by = aggregate.by if isinstance(aggregate.by, tuple) else (aggregate.by,)
    columns = aggregate.column if isinstance(aggregate.column, tuple) else (aggregate.column,)
    if aggregate.nulls == "ignore":
        rows = [row for row in rows if all(row[one] is not None and row[one] == row[one] for one in by)]

    def ranks(row: Row) -> list[Any]:
        return [place(row[one], aggregate.nulls) for one in by]

    by_value = sorted(rows, key=lambda row: [place(row[one], "greatest") for one in columns])
    found = sorted(by_value, key=ranks, reverse=aggregate.greatest)
    values = [row["id"] if len(columns) == 1 else {one: row[one] for one in columns} for row in found]
    if not hasattr(aggregate, "n"):
        return values[0] if values else None
    last = [ranks(row) for row in found[: aggregate.n]][-1:]
    more = [values[number] for number in range(aggregate.n, len(found)) if [ranks(found[number])] == last]
    return [*values[: aggregate.n], *(more if aggregate.ties else [])]


def as_text(pane: dict[str, Any]) -> str:
    """Returns values as text, in which NaN equals itself, and equal times are equal."""
    return repr(pane).replace("-0.0", "0.0").replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


@pytest.mark.parametrize("kind", VALUES)
@law
@given(data=st.data())
def test_each_place_of_nulls_gives_the_rows_of_plain_python(kind: str, data: st.DataObject) -> None:
    dtype, values = VALUES[kind]
    value = st.none() | values
    pairs = data.draw(st.lists(st.tuples(value, value, st.integers(0, 5)), min_size=1, max_size=8))
    rows = [{"id": number, "v": v, "w": w, EVENT_TIME: at} for number, (v, w, at) in enumerate(pairs)]
    some = [row for row in rows if data.draw(st.booleans())]
    aggregates = {name: made(nulls=data.draw(st.sampled_from(NULLS))) for name, made in CHOSEN.items()}
    columns = pl.Schema({"id": pl.Int64(), "v": dtype, "w": dtype})
    wanted = {name: expected(aggregate, rows) for name, aggregate in aggregates.items()}
    bundles = [some, [row for row in rows if row not in some]]
    (pane,) = run_rows(aggregates, columns, [bundle for bundle in bundles if bundle], data.draw(windowings))
    assert as_text(pane) == as_text(wanted)
    gone = [{**row, "id": row["id"] + 100} for row in rows]
    (pane,) = result(aggregates, columns, data.draw(played(rows, gone)))
    assert as_text(pane) == as_text(wanted)


@pytest.mark.parametrize("made", [Top, Bottom])
def test_an_unknown_place_of_nulls_is_refused_with_the_known_ones(made: Any) -> None:
    with pytest.raises(ValueError, match="nulls must be one of 'ignore', 'least', 'greatest', not 'first'"):
        made("v", 1, nulls="first")
