"""Sources and sinks of rows: declarations of what a pipeline reads and writes.

Connectors with clients of their own (Kafka, Redis, tables) are in its folders, and are imported from there.

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
from beamlike.io.each_batch import ForEachBatch
from beamlike.io.files.files import Files
from beamlike.io.files.formats import CSV, JSONLines, Parquet
from beamlike.io.memory import Memory, Rows
from beamlike.io.sources import PlannedBatch
from beamlike.io.spark_sink import SparkSink
from beamlike.io.spark_source import SparkSource

__all__ = [
    "CSV",
    "AnnouncingSource",
    "Callback",
    "Console",
    "Files",
    "ForEachBatch",
    "JSONLines",
    "Memory",
    "Parquet",
    "Part",
    "PlannedBatch",
    "Rows",
    "Sink",
    "Source",
    "SparkSink",
    "SparkSource",
    "WrittenBySpark",
    "WrittenInFrames",
    "output_frame",
    "output_schema",
]
