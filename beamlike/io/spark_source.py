"""Any input that Spark can read, declared without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs
import polars as pl

from beamlike.io.base import Declared, declared
from stages.strategies.base import WatermarkStrategy

if TYPE_CHECKING:
    Reader = Callable[[Any], Any]
    """`SparkSession -> DataFrame`, streaming or not."""


@attrs.frozen
class SparkSource:
    """What `reader(spark)` gives: Kafka, tables, any streaming DataFrame. Runs on Spark only.

    `schema` names the columns and their types; without it Spark is asked when the pipeline is declared.
    `watermark`: the strategy that understands what the source announces, for a source that does; `p.read` then needs
    none.
    """

    reader: Reader = attrs.field(validator=attrs.validators.is_callable())
    _schema: Declared | None = attrs.field(default=None, converter=declared)
    watermark: WatermarkStrategy | None = attrs.field(
        default=None,
        kw_only=True,
        validator=attrs.validators.optional(attrs.validators.instance_of(WatermarkStrategy)),
    )
    _found: dict[str, pl.Schema] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    bounded: ClassVar[bool] = False

    def schema(self) -> pl.Schema:
        """The columns: those declared, else those that Spark finds, as polars types."""
        if self._schema is not None:
            return pl.Schema(self._schema)
        if not self._found:
            from beamlike.spark.query.ingest import schema_of
            from beamlike.spark.session.session import open_session

            session = open_session(None, master=None, shards=None, name="beamlike", config={}, row_loops=True)
            self._found["schema"] = schema_of(self.reader, session)
        return self._found["schema"]

    def for_event_time(self, column: str) -> Self:
        """The same: Spark's columns have types."""
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Raises `NotImplementedError`: only Spark can read it."""
        raise NotImplementedError("a SparkSource can only be read by Spark: run with runner=SparkRunner(...)")
