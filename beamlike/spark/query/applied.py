"""Applies functions of workers to streams. All of them give envelopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from beamlike.spark.session.kinds import is_connect
from beamlike.spark.session.loading import packed
from beamlike.spark.session.workers import Batches, settled

ENVELOPES: Final = (
    StructType()
    .add("shard", IntegerType())
    .add("target", StringType())
    .add("origin", StringType())
    .add("kind", StringType())
    .add("sequence", LongType())
    .add("payload", BinaryType())
)
"""The columns of envelopes. As an object, since Spark would need its Java for a schema given as text."""


def applied(frame: DataFrame, run: Batches) -> DataFrame:
    """Returns the envelopes that `run` makes of a frame in workers."""
    function = settled(run)
    return frame.mapInArrow(_alone(function) if is_connect(frame.sparkSession) else function, ENVELOPES)


def _alone(run: Batches) -> Batches:
    """Returns the function for workers that have nothing of ours yet."""
    load = packed(run)

    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from load()(batches)

    return loaded
