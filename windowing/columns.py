"""The columns that the engine adds to a user's rows. Names that begin with two underscores are reserved."""

from __future__ import annotations

from typing import Final

EVENT_TIME: Final = "__event_time"
"""Int64, microseconds UTC: the event time of an element, or the output timestamp of a pane."""

WINDOW_START: Final = "__window_start"
WINDOW_END: Final = "__window_end"
"""Int64, microseconds UTC: the bounds of a window, which is half-open, `[start, end)`."""

PREVIOUS_END: Final = "__previous_end"
"""Int64, microseconds UTC, for custom windows: the end of the previous window. No pane has an earlier event time."""

PANE_TIMING: Final = "__pane_timing"
PANE_INDEX: Final = "__pane_index"
PANE_NONSPECULATIVE_INDEX: Final = "__pane_nonspeculative_index"
PANE_FIRST: Final = "__pane_first"
PANE_LAST: Final = "__pane_last"
PANE_RETRACTED: Final = "__pane_retracted"
"""Boolean: true if the pane retracts an earlier pane."""
PANE_DRAINED: Final = "__pane_drained"
"""Boolean: true if the end of a run closed the window before the watermark did, so elements may be missing."""
PANE_CAUSE: Final = "__pane_cause"
"""String: why the window emitted the pane; one of `windowing.panes.CAUSES`."""
PANE_COMPLETE: Final = "__pane_complete"
"""Float64: the expected share of the rows of the window that sources have read; null if it is not known."""
PANE_WATERMARK: Final = "__pane_watermark"
"""Int64, microseconds UTC: the input watermark with which the pane was emitted; null at the ends of time."""

WINDOW_COLUMNS: Final = (WINDOW_START, WINDOW_END)
ASKED_COLUMNS: Final = (PANE_CAUSE, PANE_COMPLETE, PANE_WATERMARK)
"""The pane columns that a grouping computes only if a step or a promise needs them. Sinks do not receive them."""
PANE_COLUMNS: Final = (
    PANE_TIMING, PANE_INDEX, PANE_NONSPECULATIVE_INDEX, PANE_FIRST, PANE_LAST, PANE_RETRACTED, PANE_DRAINED,
    *ASKED_COLUMNS,
)  # fmt: skip
SYSTEM_COLUMNS: Final = (EVENT_TIME, *WINDOW_COLUMNS, PREVIOUS_END, *PANE_COLUMNS)
RESERVED_PREFIX: Final = "__"
"""The prefix of the names of system columns, which users must not use."""
