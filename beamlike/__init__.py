"""WHAT: event-time pipelines, declared once, run in process on polars or on Spark Structured Streaming.

May import `stages` and all below it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamlike.system import allocator as _allocator  # noqa: F401  before all that imports polars

# isort: split
from beamlike.api.cogroup import cogroup
from beamlike.api.collection import Collection
from beamlike.api.flatten import flatten
from beamlike.api.pipeline import Pipeline
from beamlike.api.sides import LookupTable, SideInput, as_dict, as_list, as_singleton, lookup
from beamlike.errors import CheckpointError, PlanError, RunError, SinkError, StepError, TooManyDeadLetters
from beamlike.expressions.aggregates import (
    all,
    any,
    approx_count_distinct,
    arg_max,
    arg_min,
    bottom,
    collect,
    collect_set,
    combine,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    median,
    min,
    mode,
    quantile,
    sample,
    std,
    sum,
    top,
    var,
    window_length,
)
from beamlike.expressions.functions import (
    col,
    event_time,
    lit,
    pane_drained,
    pane_first,
    pane_index,
    pane_last,
    pane_nonspeculative_index,
    pane_retracted,
    pane_timing,
    regexp_extract,
    timestamp_of,
    when,
    window_end,
    window_start,
)
from beamlike.expressions.running import previous
from beamlike.io import (
    CSV,
    AnnouncingSource,
    Callback,
    Console,
    Delta,
    Iceberg,
    JSONLines,
    Kafka,
    KafkaSink,
    Memory,
    Parquet,
    PlannedBatch,
    Redis,
    Rows,
    SparkSink,
    SparkSource,
    Table,
    avro,
    json,
)
from beamlike.io.refreshed import Refreshed
from beamlike.io.test_stream.stream import TestStream
from beamlike.local.runner import LocalRunner
from beamlike.logical.punctuated import Punctuated, TimeOrderedLogs
from beamlike.logical.watermark import source_file
from beamlike.steps.calls import Calls
from stages.aggregates.combine_fn import CombineFn
from stages.custom import CustomOperator
from stages.process.declarations import (
    Combining,
    EventTimer,
    EventTimers,
    List,
    Map,
    OrderedList,
    Process,
    ProcessingTimer,
    ProcessingTimers,
    Set,
    TimestampedValue,
    Value,
)
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import (
    BoundedOutOfOrderness,
    IngressTimestamps,
    MonotonousTimestamps,
    PercentileLateness,
    ProcessingTimeLag,
    WatermarkStrategy,
)
from windowing import (
    Accumulation,
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    CalendarWindows,
    CustomWindows,
    DefaultTrigger,
    FixedWindows,
    GlobalWindows,
    Never,
    OrFinally,
    Repeatedly,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
)

if TYPE_CHECKING:
    from beamlike import errors as errors
    from beamlike import observe as observe
    from beamlike import operators as operators
    from beamlike import testing as testing
    from beamlike.spark import savepoint as savepoint
    from beamlike.spark.runner import SparkRunner

ACCUMULATING = Accumulation.ACCUMULATING
DISCARDING = Accumulation.DISCARDING
EARLIEST = TimestampCombiner.EARLIEST
END_OF_WINDOW = TimestampCombiner.END_OF_WINDOW
LATEST = TimestampCombiner.LATEST
RETRACTING = Accumulation.RETRACTING

__all__ = [
    "ACCUMULATING",
    "CSV",
    "DISCARDING",
    "EARLIEST",
    "END_OF_WINDOW",
    "LATEST",
    "RETRACTING",
    "Accumulation",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterSynchronizedProcessingTime",
    "AfterWatermark",
    "Always",
    "AnnouncedWatermark",
    "AnnouncingSource",
    "BoundedOutOfOrderness",
    "CalendarWindows",
    "Callback",
    "Calls",
    "CheckpointError",
    "Collection",
    "CombineFn",
    "Combining",
    "Console",
    "CustomOperator",
    "CustomWindows",
    "DefaultTrigger",
    "Delta",
    "EventTimer",
    "EventTimers",
    "FixedWindows",
    "GlobalWindows",
    "Iceberg",
    "IngressTimestamps",
    "JSONLines",
    "Kafka",
    "KafkaSink",
    "List",
    "LocalRunner",
    "LookupTable",
    "Map",
    "Memory",
    "MonotonousTimestamps",
    "Never",
    "OrFinally",
    "OrderedList",
    "Parquet",
    "PercentileLateness",
    "Pipeline",
    "PlanError",
    "PlannedBatch",
    "Process",
    "ProcessingTimeLag",
    "ProcessingTimer",
    "ProcessingTimers",
    "Punctuated",
    "Redis",
    "Refreshed",
    "Repeatedly",
    "Rows",
    "RunError",
    "Sessions",
    "Set",
    "SideInput",
    "SinkError",
    "SlidingWindows",
    "SparkRunner",
    "SparkSink",
    "SparkSource",
    "StepError",
    "Table",
    "TestStream",
    "TimeOrderedLogs",
    "TimestampCombiner",
    "TimestampedValue",
    "TooManyDeadLetters",
    "Value",
    "WatermarkStrategy",
    "WindowFn",
    "all",
    "any",
    "approx_count_distinct",
    "arg_max",
    "arg_min",
    "as_dict",
    "as_list",
    "as_singleton",
    "avro",
    "bottom",
    "cogroup",
    "col",
    "collect",
    "collect_set",
    "combine",
    "count",
    "count_distinct",
    "errors",
    "event_time",
    "first",
    "flatten",
    "json",
    "last",
    "lit",
    "lookup",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "observe",
    "pane_drained",
    "pane_first",
    "pane_index",
    "pane_last",
    "pane_nonspeculative_index",
    "pane_retracted",
    "pane_timing",
    "previous",
    "quantile",
    "regexp_extract",
    "sample",
    "savepoint",
    "source_file",
    "std",
    "sum",
    "testing",
    "timestamp_of",
    "top",
    "var",
    "when",
    "window_end",
    "window_length",
    "window_start",
]

_ROOMS = {
    "errors": "beamlike.errors",
    "observe": "beamlike.observe",
    "operators": "beamlike.operators",
    "savepoint": "beamlike.api.savepoint",
    "testing": "beamlike.testing",
}


def __getattr__(name: str) -> Any:
    # Only who asks for it needs Spark: importing pyspark takes longer than many a local run.
    if name == "SparkRunner":
        from beamlike.spark.runner import SparkRunner

        return SparkRunner
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    if name == "__version__":
        from beamlike.version import version

        return version()
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from beamlike.api.other_names import PACKAGE, missing

    raise missing(sys.modules[__name__], f"module {__name__!r}", name, PACKAGE, __all__)


def __dir__() -> list[str]:
    """What is public; not what is imported to make it."""
    return sorted([*__all__, "__version__"])
