"""WHEN: event time, windows, triggers, timestamp combiners and panes, as expressions over columns.

Imports nothing else of the project.
"""

from windowing.calendars import CalendarWindows
from windowing.custom import CustomWindows
from windowing.panes import Accumulation
from windowing.time import Duration, format_duration, format_time, microseconds
from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
from windowing.triggers.base import OrFinally, Repeatedly, Trigger
from windowing.triggers.basic import AfterCount, AfterWatermark, Always, DefaultTrigger, Never
from windowing.triggers.composites import AfterAll, AfterAny, AfterEach
from windowing.triggers.processing_time import AfterProcessingTime, AfterSynchronizedProcessingTime
from windowing.windowing import Windowing
from windowing.windows import (
    CumulativeWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    WindowFn,
)

__all__ = [
    "Accumulation",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterSynchronizedProcessingTime",
    "AfterWatermark",
    "Always",
    "CalendarWindows",
    "CumulativeWindows",
    "CustomWindows",
    "DefaultTrigger",
    "Duration",
    "FixedWindows",
    "GlobalWindows",
    "Never",
    "OrFinally",
    "Repeatedly",
    "Sessions",
    "SlidingWindows",
    "TimestampCombiner",
    "TimestampOf",
    "Trigger",
    "WindowFn",
    "Windowing",
    "format_duration",
    "format_time",
    "microseconds",
]
