"""The union of several collections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import narwhals as nw
import polars as pl

from beamlike.api.pipeline import Collection
from beamlike.api.recorded import recorded
from beamlike.errors import PlanError, UnlikeCollections, WrongType
from beamlike.logical.flatten import flattened, require_alike
from beamlike.rows.dtypes import as_narwhals, type_name
from beamlike.steps.infer import flat


@recorded
def flatten(
    *collections: Collection | Iterable[Collection], fill_missing: bool = False, name: str | None = None
) -> Collection:
    """Combines several collections into one that has all their rows.

    Triggers and accumulation are those of the first collection, and the allowed lateness is the largest. If rows are in
    unlike windows, `window_into` must follow before a step that needs windows, such as a grouping.

    Args:
        *collections: At least two collections of one pipeline, or a list of them, with the same columns.
        fill_missing: True accepts columns that only some collections have; they are null in the rows of the others.
        name: The name of the step.

    Raises:
        PlanError: The collections differ, with the difference in the message.

    Example, with the `plays` of `Collection`:
        >>> few, many = plays.filter(bl.col("points") < 4), plays.filter(bl.col("points") > 4)
        >>> bl.flatten(few, many).collect()["points"].to_list()
        [3, 5]
        >>> bl.flatten(few.select("user"), many, fill_missing=True).collect()[["user", "points"]].rows()
        [('ada', None), ('bob', 5)]
    """
    inputs: list[Collection] = flat(collections)
    step = name or f"flatten({', '.join(getattr(item, 'name', '?') for item in inputs)})"
    require_collections(inputs, "flatten", step)
    if fill_missing:
        inputs = _filled(inputs, step)
    nodes = [item.node for item in inputs]
    require_alike(nodes, step)
    pipeline = inputs[0].pipeline
    step = pipeline.new_name(name, "flatten")
    pipeline.register(step)
    return Collection(pipeline, flattened(nodes, step))


def _filled(inputs: Sequence[Collection], step: str) -> list[Collection]:
    """Adds to each collection the columns that it lacks, as nulls, in one order for all."""
    columns: dict[str, pl.DataType] = {}
    for item in inputs:
        for column, dtype in item.schema.items():
            if columns.setdefault(column, dtype) != dtype:
                raise UnlikeCollections(
                    f"{column!r} is {type_name(dtype)} in {item.name!r}, and {type_name(columns[column])} in another; "
                    "cast or rename it before",
                    step=step,
                )
    return [item.select(*(_column(item, name, dtype) for name, dtype in columns.items())) for item in inputs]


def _column(item: Collection, name: str, dtype: pl.DataType) -> nw.Expr:
    return nw.col(name) if name in item.schema else nw.lit(None, as_narwhals(dtype)).alias(name)


def require_collections(given: Sequence[Any], what: str, step: str) -> None:
    """Raises `PlanError` unless `given` has at least two collections of one pipeline; `what` names the step."""
    for item in given:
        if not isinstance(item, Collection):
            raise WrongType(f"expected collections, got {item!r}", step=step)
    if len(given) < 2:
        raise PlanError(f"{what} needs at least two collections, got {len(given)}", step=step)
    pipelines = list(dict.fromkeys(item.pipeline.name for item in given))
    if any(item.pipeline is not given[0].pipeline for item in given):
        names = ", ".join(map(repr, pipelines))
        raise PlanError(
            f"these collections are of different pipelines, {names}: read all in the same pipeline",
            step=step,
        )
