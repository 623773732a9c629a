"""The knowledge of a source's lateness, from which the completeness of windows is estimated."""

from __future__ import annotations

from stages.completeness import Expected
from stages.progress.splits import SourceState
from stages.strategies.base import WatermarkStrategy
from stages.strategies.lateness import levels
from windowing.time import MAX_TIME


def expected(
    strategy: WatermarkStrategy, state: SourceState, *, skew: int = 0, drains: bool = False
) -> Expected:
    """Returns the knowledge of a source in this state.

    Args:
        strategy: The watermark strategy of the source.
        state: The state of the source.
        skew: The duration (us) by which steps after the source may move event times back.
        drains: True if the run may end before its input does. The end of input then proves nothing.
    """
    ended = state.at_end and not drains
    perfect = strategy.perfect and state.watermark < MAX_TIME
    newest = int(state.observed["newest"]) - skew if state.observed else None
    proved = (ended or perfect) and not state.late
    return Expected(newest, *levels(state.observed), state.watermark, proved, state.idle)
