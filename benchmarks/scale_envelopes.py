"""Sends many small envelopes through a shuffle of Spark, to Python and back, for `benchmarks.scale`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pyarrow as pa
from pyspark.sql import SparkSession

from beamlike.runtime.batch.envelope import ARROW


@click.command()
@click.argument("count", type=int)
def main(count: int) -> None:
    """Every envelope goes from one of two tasks to one of two others, which pass it on to the driver's count."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    payload = f'CAST(\'{{"now":1,"report":{{}}, "filler": "{"x" * 60}"}}\' AS BINARY) AS payload'
    names = ["CAST(id % 1000 AS INT) AS shard", "'stage' AS target", "concat('stage/', id % 1000) AS origin"]
    sent = spark.range(count).selectExpr(*names, "'report' AS kind", "0L AS sequence", payload)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict(batch.to_pydict(), ARROW)

    made = sent.mapInArrow(run, sent.schema).repartition("shard").mapInArrow(run, sent.schema)
    made.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
