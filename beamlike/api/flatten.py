"""Several collections as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import narwhals as nw
import polars as pl

from beamlike.api.collection import Collection
from beamlike.errors import PlanError, UnlikeCollections, WrongType
from beamlike.logical.flatten import flattened, require_alike
from beamlike.rows.dtypes import as_narwhals, type_name
from beamlike.steps.infer import flat


def flatten(
    *collections: Collection | Iterable[Collection], fill_missing: bool = False, name: str | None = None
) -> Collection:
    """The rows of all collections together, which must have the same columns and the same windowing.

    `collections` are at least two, of one pipeline; they may be given as a list. With `fill_missing=True`, columns that
    only some have are null in the rows of the others. `name` is that of the step. Raises `PlanError` where they differ,
    with what is different.

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
    """All with the columns of all, in one order."""
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
    """At least two collections of one pipeline, for a step that is called `what`."""
    for item in given:
        if not isinstance(item, Collection):
            raise WrongType(f"expected collections, got {item!r}", step=step)
    if len(given) < 2:
        raise PlanError(f"{what} needs at least two collections, got {len(given)}", step=step)
    pipelines = list(dict.fromkeys(item.pipeline.name for item in given))
    if any(item.pipeline is not given[0].pipeline for item in given):
        raise PlanError(f"these collections are of different pipelines: {', '.join(pipelines)}", step=step)
