"""The columns of a source that only Spark knows."""

from __future__ import annotations

from typing import Any

from beamlike.io.sources import SchemaFromSpark


def with_columns(source: Any) -> Any:
    """What was given as a source, with its columns known: where it leaves them open, Spark is asked, and started."""
    if isinstance(source, type) or not isinstance(source, SchemaFromSpark) or not source.is_open:
        return source
    from beamlike.spark.query.ingest import schema_of
    from beamlike.spark.session.session import open_session

    session = open_session(None, master=None, shards=None, name="beamlike", config={}, row_loops=True)
    return source.with_schema(schema_of(source.read_by_spark, session))
