"""The names with which users write operators of their own, for `Collection.apply`. Experimental.

May import `stages` and all below it.
"""

from __future__ import annotations

from stages.clock import StepClock, Watermarks
from stages.custom import CustomOperator
from stages.declared import Declaration
from stages.operator import (
    HOLD,
    MAIN,
    PENDING,
    Given,
    Input,
    Loaded,
    Refused,
    Spread,
    State,
    StateTable,
    Table,
)
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START

__all__ = [
    "EVENT_TIME",
    "HOLD",
    "MAIN",
    "PENDING",
    "PROCESSING_TIME",
    "WATERMARK",
    "WINDOW_END",
    "WINDOW_START",
    "CustomOperator",
    "Declaration",
    "Given",
    "Input",
    "Loaded",
    "Refused",
    "Spread",
    "State",
    "StateTable",
    "StepClock",
    "Table",
    "Times",
    "Watermarks",
]
