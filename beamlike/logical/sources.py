"""Declarations of sources, with their event time and watermark strategy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import MissingFiles, PlanError, WrongType, naming_source
from beamlike.io.capabilities import require_signatures
from beamlike.io.options import require_options
from beamlike.io.refreshed import READ_AT, Refreshed
from beamlike.io.sources import InfersSchema, ReadInSteps, with_event_time
from beamlike.logical.event_time import event_time, event_time_column, require_no_unit
from beamlike.logical.node import Node
from beamlike.logical.origins import Configure, Read
from beamlike.logical.watermark import by_split, fitted, require_watermark
from beamlike.rows.dtypes import require_column_name
from beamlike.steps.base import Step
from beamlike.steps.infer import Shape
from beamlike.steps.readings import RowsOfReadings
from beamlike.steps.timestamps import not_negative
from windowing.columns import EVENT_TIME
from windowing.time import Duration
from windowing.windowing import Windowing

_SOURCES: Final = {"KafkaSink": "Kafka", "SparkSink": "SparkSource"}


def source_node(
    name: str,
    source: Any,
    timestamp: Any,
    unit: str | None,
    watermark: object,
    max_future: Duration | None,
) -> Node:
    """Declares the rows of a source, in the global window. Arguments are those of `Pipeline.read`."""
    source, schema = require_source(source, name)
    if isinstance(timestamp, str) and timestamp in schema:
        timed = with_event_time(source, timestamp, unit)
        if timed is not source:
            source, schema = require_source(timed, name)
    origin = read(source, schema, timestamp, unit, watermark, name, max_future)
    shape = Shape(schema, origin.system)
    return Node(name, origin, (), shape, Windowing(), name, bounded=bool(source.bounded))


def readings_node(name: str, source: Refreshed, timestamp: Any, unit: str | None, watermark: object) -> Node:
    """Declares a source that is read repeatedly. Its node of rows follows a node with one row per reading."""
    if (timestamp, unit, watermark) != (None, None, None):
        raise PlanError(
            "the event time of a bl.Refreshed(...) is when it was read; leave out timestamp= and watermark=",
            step=name,
        )
    source, schema = require_source(source, name)
    for column in source.rows:
        require_column_name(column, name)
    origin = read(source, schema, READ_AT, "us", None, name)
    one = Node(name, origin, (), Shape(schema, origin.system), Windowing(), name, bounded=False)
    step = f"{name}.rows"
    rows = RowsOfReadings(step, tuple(source.rows))
    after: Node = attrs.evolve(
        one, name=step, origin=rows, inputs=(one,), shape=Shape(source.rows, origin.system)
    )
    return after


def is_read_again(node: Node) -> bool:
    """True if the rows are from repeated readings of a source, where each reading replaces the one before."""
    while isinstance(node.origin, Step | Configure):
        node = node.inputs[0]
    return isinstance(node.origin, Read) and isinstance(node.origin.source, Refreshed)


def require_source(source: Any, step: str) -> tuple[Any, pl.Schema]:
    """Returns the source with its columns declared, and the columns. Raises `PlanError` if the object is no source."""
    if (
        isinstance(source, type)
        or not callable(getattr(source, "schema", None))
        or not hasattr(source, "bounded")
    ):
        raise WrongType(f"expected a source such as bl.Parquet('data/plays'), got {_got(source)}", step=step)
    read = source.source if isinstance(source, Refreshed) else source
    require_options(read, "source", step)
    require_signatures(read, "source", step)
    try:
        with naming_source(step):
            source = source.looked_up() if isinstance(source, InfersSchema) else source
            schema = _columns(source, step)
    except FileNotFoundError as error:
        raise MissingFiles(str(error), step=step) from None
    except PlanError as error:
        raise error if error.step is not None else type(error)(str(error), step=step) from None
    for column in schema:
        require_column_name(column, step)
    return source, schema


def _got(source: object) -> str:
    """Describes an object that is no source, and names the class that the user may have meant."""
    if isinstance(source, str | os.PathLike):
        return f"{source!r}; did you mean bl.Parquet(...)?"
    if isinstance(source, list) or hasattr(source, "columns"):
        return f"a {type(source).__name__}; did you mean bl.Rows(...)?"
    if (kind := type(source).__name__) in _SOURCES:
        return f"the sink {kind}; did you mean bl.{_SOURCES[kind]}(...)?"
    return repr(source)


def _columns(source: Any, step: str) -> pl.Schema:
    given, method = source.schema(), f"{type(source).__name__}.schema"
    if not isinstance(given, Mapping):
        raise WrongType(
            f"{method} must give the columns with their types, such as {{'user': pl.String}}, not {given!r}",
            step=step,
        )
    try:
        return pl.Schema(given)
    except TypeError as error:
        raise WrongType(f"{method}: {error}", step=step) from None


def read(
    source: Any,
    raw: pl.Schema,
    timestamp: Any,
    unit: str | None,
    watermark: object,
    step: str,
    max_future: Duration | None = None,
) -> Read:
    """Returns the declaration of a source with the columns `raw`. Arguments are those of `Pipeline.read`.

    Without `timestamp` and `watermark`, its rows have no event time yet.
    """
    limit = None if max_future is None else not_negative("max_future", max_future, step)
    if isinstance(source, ReadInSteps):
        limit = None  # A test stream sets its own processing time, which may be unrelated to its event times.
    if timestamp is None and watermark is None:
        require_no_unit(unit, step)
        return Read(source, raw, max_future=limit)
    if timestamp is not None:
        event_time_column(raw, timestamp, unit, step)
    strategy = by_split(source, require_watermark(source, watermark, step), raw, step)
    time = event_time(raw, timestamp, unit, strategy, step)
    strategy = fitted(strategy, Shape(raw, (EVENT_TIME,)), step)
    return Read(source, raw, time, strategy, max_future=limit)
