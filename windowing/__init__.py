"""WHEN: event time, windows, triggers, timestamp combiners and panes, as expressions over columns."""

from windowing.combiners import TimestampCombiner
from windowing.panes import Accumulation
from windowing.strategy import Windowing
from windowing.time import Duration, format_duration, format_time, microseconds
from windowing.triggers import AfterCount, AfterWatermark, DefaultTrigger, Repeatedly, Trigger
from windowing.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn

__all__ = [
    "Accumulation",
    "AfterCount",
    "AfterWatermark",
    "DefaultTrigger",
    "Duration",
    "FixedWindows",
    "GlobalWindows",
    "Repeatedly",
    "Sessions",
    "SlidingWindows",
    "TimestampCombiner",
    "Trigger",
    "WindowFn",
    "Windowing",
    "format_duration",
    "format_time",
    "microseconds",
]
