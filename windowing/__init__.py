"""WHEN: event time, windows, triggers, timestamp combiners and panes, as expressions over columns."""

from windowing.calendars import CalendarWindows
from windowing.combiners import TimestampCombiner, TimestampOf
from windowing.composites import AfterAll, AfterAny, AfterEach, OrFinally, Repeatedly
from windowing.custom import CustomWindows
from windowing.panes import Accumulation
from windowing.processing_time import AfterProcessingTime, AfterSynchronizedProcessingTime
from windowing.strategy import Windowing
from windowing.time import Duration, format_duration, format_time, microseconds
from windowing.triggers import AfterCount, AfterWatermark, Trigger
from windowing.unconditional import Always, DefaultTrigger, Never
from windowing.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn

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
