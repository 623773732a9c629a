"""The columns that the engine adds to a user's rows. Names that begin with two underscores are reserved."""

from __future__ import annotations

from typing import Final

EVENT_TIME: Final = "__event_time"
"""Int64, microseconds UTC: the time at which the element happened; of a pane, its output timestamp."""

WINDOW_START: Final = "__window_start"
WINDOW_END: Final = "__window_end"
"""Int64, microseconds UTC: the window is half-open, `[start, end)`."""

PREVIOUS_END: Final = "__previous_end"
"""Int64, of a user's own windows: the end of the previous window. No pane of the window has an earlier time."""

PANE_TIMING: Final = "__pane_timing"
PANE_INDEX: Final = "__pane_index"
PANE_NONSPECULATIVE_INDEX: Final = "__pane_nonspeculative_index"
PANE_FIRST: Final = "__pane_first"
PANE_LAST: Final = "__pane_last"
PANE_RETRACTED: Final = "__pane_retracted"
"""Boolean: true if the pane retracts one that was emitted before."""
PANE_DRAINED: Final = "__pane_drained"
"""Boolean: true if the end of a run closed the window before its watermark had passed, so elements may be missing."""

WINDOW_COLUMNS: Final = (WINDOW_START, WINDOW_END)
PANE_COLUMNS: Final = (
    PANE_TIMING, PANE_INDEX, PANE_NONSPECULATIVE_INDEX, PANE_FIRST, PANE_LAST, PANE_RETRACTED, PANE_DRAINED
)  # fmt: skip
SYSTEM_COLUMNS: Final = (EVENT_TIME, *WINDOW_COLUMNS, PREVIOUS_END, *PANE_COLUMNS)
RESERVED_PREFIX: Final = "__"
