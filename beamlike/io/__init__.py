"""Sources and sinks: declarations that know how to read and write.

May import `rows`, `system` and all below them.
"""

from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import (
    Part,
    Sink,
    Source,
    WrittenBySpark,
    WrittenInFrames,
    output_frame,
    output_schema,
)
from beamlike.io.callback import Callback
from beamlike.io.console import Console
from beamlike.io.files.files import Files
from beamlike.io.files.formats import CSV, JSONLines, Parquet
from beamlike.io.kafka.avro import avro
from beamlike.io.kafka.codecs import json
from beamlike.io.kafka.sink import KafkaSink
from beamlike.io.kafka.source import Kafka
from beamlike.io.lake.delta import Delta
from beamlike.io.lake.iceberg import Iceberg
from beamlike.io.memory import Memory, Rows
from beamlike.io.redis.source import Redis
from beamlike.io.sources import PlannedBatch
from beamlike.io.spark_sink import SparkSink
from beamlike.io.spark_source import SparkSource
from beamlike.io.sql.table import Table

__all__ = [
    "CSV",
    "AnnouncingSource",
    "Callback",
    "Console",
    "Delta",
    "Files",
    "Iceberg",
    "JSONLines",
    "Kafka",
    "KafkaSink",
    "Memory",
    "Parquet",
    "Part",
    "PlannedBatch",
    "Redis",
    "Rows",
    "Sink",
    "Source",
    "SparkSink",
    "SparkSource",
    "Table",
    "WrittenBySpark",
    "WrittenInFrames",
    "avro",
    "json",
    "output_frame",
    "output_schema",
]
