"""Event-time pipelines, declared once, run in process on polars or on Spark Structured Streaming (the layer WHAT).

May import `stages` and all below it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from beamlike.system import allocator as _allocator  # noqa: F401  before all that imports polars
from beamlike.system import shadowed as _shadowed  # noqa: F401  before all that imports stages or windowing

# isort: split
from beamlike.api.changes import changes
from beamlike.api.cogroup import cogroup
from beamlike.api.flatten import flatten
from beamlike.api.pipeline import Collection, Pipeline
from beamlike.api.sides import LookupTable, SideInput, as_dict, as_list, as_singleton, lookup
from beamlike.errors import CheckpointError, PlanError, RunError, SinkError, StepError, TooManyDeadLetters
from beamlike.expressions.aggregates import (
    all,
    any,
    approx_count_distinct,
    approx_quantile,
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
    pane_cause,
    pane_complete,
    pane_drained,
    pane_first,
    pane_index,
    pane_last,
    pane_nonspeculative_index,
    pane_retracted,
    pane_timing,
    pane_watermark,
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
    ForEachBatch,
    JSONLines,
    Memory,
    Parquet,
    PlannedBatch,
    Rows,
    SparkSink,
    SparkSource,
)
from beamlike.io.refreshed import Refreshed
from beamlike.io.test_stream.stream import TestStream
from beamlike.logical.punctuated import Punctuated, TimeOrderedLogs
from beamlike.logical.watermark import source_file
from beamlike.steps.calls import Calls
from beamlike.system.arguments import answered_name, answering_all
from stages.aggregates.combine_fn import CombineFn
from stages.custom import CustomOperator
from stages.process.declarations import Process, TimestampedValue
from stages.process.state_fields import Combining, List, Map, OrderedList, Set, Value
from stages.process.timer_fields import EventTimer, EventTimers, ProcessingTimer, ProcessingTimers
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
    CumulativeWindows,
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
    from beamlike.api import savepoint as savepoint
    from beamlike.io.kafka.avro import avro
    from beamlike.io.kafka.codecs import json
    from beamlike.io.kafka.sink import KafkaSink
    from beamlike.io.kafka.source import Kafka
    from beamlike.io.lake.delta import Delta
    from beamlike.io.lake.iceberg import Iceberg
    from beamlike.io.redis.source import Redis
    from beamlike.io.sql.table import Table
    from beamlike.local.runner import LocalRunner
    from beamlike.replaying.diffing.diff import diff
    from beamlike.replaying.rebuilding.rebuild import rebuild
    from beamlike.replaying.record import record
    from beamlike.replaying.replay import replay
    from beamlike.replaying.tracing import trace_pane, trace_row
    from beamlike.spark.runner import SparkRunner
    from beamlike.spec.files import from_yaml
    from beamlike.spec.sql import sql

    __version__: str

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
    "CumulativeWindows",
    "CustomOperator",
    "CustomWindows",
    "DefaultTrigger",
    "Delta",
    "EventTimer",
    "EventTimers",
    "FixedWindows",
    "ForEachBatch",
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
    "approx_quantile",
    "arg_max",
    "arg_min",
    "as_dict",
    "as_list",
    "as_singleton",
    "avro",
    "bottom",
    "changes",
    "cogroup",
    "col",
    "collect",
    "collect_set",
    "combine",
    "count",
    "count_distinct",
    "diff",
    "errors",
    "event_time",
    "first",
    "flatten",
    "from_yaml",
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
    "operators",
    "pane_cause",
    "pane_complete",
    "pane_drained",
    "pane_first",
    "pane_index",
    "pane_last",
    "pane_nonspeculative_index",
    "pane_retracted",
    "pane_timing",
    "pane_watermark",
    "previous",
    "quantile",
    "rebuild",
    "record",
    "regexp_extract",
    "replay",
    "sample",
    "savepoint",
    "source_file",
    "sql",
    "std",
    "sum",
    "testing",
    "timestamp_of",
    "top",
    "trace_pane",
    "trace_row",
    "var",
    "when",
    "window_end",
    "window_length",
    "window_start",
]

# Imported on first use: the runners, and the connectors, whose clients are extras.
_MODULES = {
    "Delta": "beamlike.io.lake.delta",
    "Iceberg": "beamlike.io.lake.iceberg",
    "Kafka": "beamlike.io.kafka.source",
    "KafkaSink": "beamlike.io.kafka.sink",
    "LocalRunner": "beamlike.local.runner",
    "Redis": "beamlike.io.redis.source",
    "SparkRunner": "beamlike.spark.runner",
    "Table": "beamlike.io.sql.table",
    "avro": "beamlike.io.kafka.avro",
    "diff": "beamlike.replaying.diffing.diff",
    "from_yaml": "beamlike.spec.files",
    "json": "beamlike.io.kafka.codecs",
    "sql": "beamlike.spec.sql",
    "rebuild": "beamlike.replaying.rebuilding.rebuild",
    "record": "beamlike.replaying.record",
    "replay": "beamlike.replaying.replay",
    "trace_pane": "beamlike.replaying.tracing",
    "trace_row": "beamlike.replaying.tracing",
}
_ROOMS = {
    "errors": "beamlike.errors",
    "observe": "beamlike.observe",
    "operators": "beamlike.operators",
    "savepoint": "beamlike.api.savepoint",
    "testing": "beamlike.testing",
}


if not TYPE_CHECKING:  # for a type checker, a name that is not declared stays an error
    # Without PySpark, `import *` takes the other names. The error of this one says what to install.
    if find_spec("pyspark") is None:
        __all__.remove("SparkRunner")

    answering_all(globals(), __all__)

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return answered_name(getattr(import_module(_MODULES[name]), name))
        if name in _ROOMS:
            return import_module(_ROOMS[name])
        if name == "__version__":
            from beamlike.version import version

            return version()
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from beamlike.api.other_names import missing
        from beamlike.expressions.other_names import PACKAGE

        raise missing(sys.modules[__name__], f"module {__name__!r}", name, PACKAGE, __all__)


def __dir__() -> list[str]:
    """Returns the public names, without imports."""
    return sorted([*__all__, "__version__"])
