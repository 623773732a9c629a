"""The names that users need to write their own operators for `Collection.apply`. Experimental.

May import `stages` and all below it.
"""

from __future__ import annotations

from stages.clock import StepClock, Watermarks
from stages.custom import CustomOperator
from stages.declared import Declaration
from stages.operator import HOLD, MAIN, PENDING, Input, Refused, StepOutput
from stages.state_tables import (
    AppendTable,
    KeyedTable,
    Loaded,
    SharedTable,
    Spread,
    State,
    StateTable,
    Table,
    TimeTable,
    WindowTable,
)
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_END, WINDOW_START

__all__ = [
    "EVENT_TIME",
    "HOLD",
    "MAIN",
    "PANE_RETRACTED",
    "PENDING",
    "PROCESSING_TIME",
    "WATERMARK",
    "WINDOW_END",
    "WINDOW_START",
    "AppendTable",
    "CustomOperator",
    "Declaration",
    "Input",
    "KeyedTable",
    "Loaded",
    "Refused",
    "SharedTable",
    "Spread",
    "State",
    "StateTable",
    "StepClock",
    "StepOutput",
    "Table",
    "TimeTable",
    "Times",
    "Watermarks",
    "WindowTable",
]
