"""A source for any input that Spark can read. It is declared without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import attrs
import polars as pl

from beamlike.io.base import Declared, declared
from beamlike.system.fields import function
from stages.strategies.base import WatermarkStrategy

if TYPE_CHECKING:
    SparkReader = Callable[[Any], Any]
    """`SparkSession -> DataFrame`, streaming or not."""


@attrs.frozen
class SparkSource:
    """A streaming DataFrame that the user's function returns. Runs on Spark only.

    Args:
        reader: A function that receives the `SparkSession`, and returns a DataFrame, streaming or not.
        schema: Column names and types. By default Spark is asked for them when the pipeline is declared.
        watermark: The strategy for a source that announces its watermark; `p.read` then needs none.

    Example:
        >>> from datetime import datetime
        >>> ticks = bl.SparkSource(lambda spark: spark.readStream.format("rate").load(), {"timestamp": datetime})
        >>> now = bl.MonotonousTimestamps()
        >>> bl.Pipeline("p").read("ticks", ticks, timestamp="timestamp", watermark=now)
        <Collection 'ticks': timestamp Datetime(us, UTC)>
    """

    reader: SparkReader = attrs.field(validator=function)
    _schema: Declared | None = attrs.field(default=None, converter=declared, alias="schema")
    watermark: WatermarkStrategy | None = attrs.field(
        default=None,
        kw_only=True,
        validator=attrs.validators.optional(attrs.validators.instance_of(WatermarkStrategy)),
    )

    bounded = False

    @property
    def is_open(self) -> bool:
        return self._schema is None

    def with_schema(self, schema: pl.Schema) -> Self:
        return attrs.evolve(self, schema=dict(schema))

    def schema(self) -> pl.Schema:
        """Returns the columns. Raises `ValueError` while they are unknown: `p.read` asks Spark for them."""
        if self._schema is None:
            raise ValueError("SparkSource: its columns are not declared; p.read asks Spark for them")
        return pl.Schema(self._schema)

    def read_by_spark(self, spark: Any) -> Any:
        return self.reader(spark)
