"""The conversion of Beam's windowing strategies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.transforms import window as beam_window
from apache_beam.utils.timestamp import Timestamp

from beamlike.beam.triggers import trigger_of
from windowing import (
    Accumulation,
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
    Windowing,
)
from windowing.panes import ALWAYS, IF_NON_EMPTY
from windowing.time import GLOBAL_WINDOW_END, Microseconds

Bounds = tuple[int, int]

_COMBINERS: Final = {
    beam_protos.OutputTime.EARLIEST_IN_PANE: TimestampCombiner.EARLIEST,
    beam_protos.OutputTime.LATEST_IN_PANE: TimestampCombiner.LATEST,
}
_ACCUMULATIONS: Final = {
    beam_protos.AccumulationMode.ACCUMULATING: Accumulation.ACCUMULATING,
    beam_protos.AccumulationMode.RETRACTING: Accumulation.RETRACTING,
}


class MergingWindows(CustomWindows):
    """Interval windows that a Beam `WindowFn` of the user merges."""

    def __init__(self, window_fn: Any) -> None:
        self.window_fn = window_fn

    def merge_windows(self, windows: list[Bounds]) -> Iterable[tuple[Iterable[Bounds], Bounds]]:
        merges = list[tuple[list[Bounds], Bounds]]()

        class Context(beam_window.WindowFn.MergeContext):
            def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
                merges.append(([bounds(each) for each in to_be_merged], bounds(merge_result)))

        self.window_fn.merge(Context([interval(*each) for each in windows]))
        return merges


class AssignedWindows(WindowFn):
    """Windows that the worker has assigned, and that do not merge."""


@attrs.frozen
class BeamWindows(WindowFn):
    """Windows of a Beam `WindowFn` of the user, for descriptions."""

    window_fn: str


def described(windowing: Windowing, window_fn: Any) -> Windowing:
    """Returns the windowing for people: with the windows that the worker assigns by a Beam `WindowFn`."""
    match window_fn:
        case beam_window.GlobalWindows() | beam_window.Sessions():
            return windowing
        case beam_window.FixedWindows(size=size, offset=offset):
            own: WindowFn = FixedWindows(_us(size), _us(offset))
        case beam_window.SlidingWindows(size=size, period=period, offset=offset):
            own = SlidingWindows(_us(size), _us(period), _us(offset))
        case _:
            own = BeamWindows(type(window_fn).__name__)
    return attrs.evolve(windowing, windows=own)


def _us(duration: Any) -> Microseconds:
    return Microseconds(duration.micros)


def bounds(window: Any) -> Bounds:
    """Returns the start and end (us) of an interval window."""
    return window.start.micros, window.end.micros


def interval(start: int, end: int) -> Any:
    """Creates Beam's interval window with these bounds (us)."""
    return beam_window.IntervalWindow(Timestamp(micros=start), Timestamp(micros=end))


def end_of(window: Any) -> int:
    """Returns the end (us) of a window of any kind."""
    last: int = window.max_timestamp().micros
    return min(last + 1, GLOBAL_WINDOW_END)


def lateness_of(proto: Any) -> int:
    """Returns the allowed lateness (us) of a strategy."""
    millis: int = proto.allowed_lateness
    return min(millis * 1000, GLOBAL_WINDOW_END - 1)


def coder_text(coders: Mapping[str, Any], name: str) -> str:
    """Returns the kind of a coder and of its components, for descriptions."""
    coder = coders[name]
    kind = coder.spec.urn.removeprefix("beam:coder:").rpartition(":")[0] or coder.spec.urn
    inner = ", ".join(coder_text(coders, each) for each in coder.component_coder_ids)
    return f"{kind}({inner})" if inner else kind


def windows_of(proto: Any, window_urn: str, context: Any, strategy_id: str) -> WindowFn:
    """Converts the windows of a strategy for a grouping.

    Args:
        proto: The strategy.
        window_urn: The URN of the coder of its windows.
        context: The context that constructs Beam's objects from protos.
        strategy_id: The id of the strategy in this context.

    Raises:
        NotImplementedError: The windows merge and are no intervals.
    """
    if proto.merge_status != beam_protos.MergeStatus.NEEDS_MERGE:
        is_global = window_urn == common_urns.coders.GLOBAL_WINDOW.urn
        return GlobalWindows() if is_global else AssignedWindows()
    if proto.window_fn.urn == common_urns.session_windows.urn:
        sessions = beam_window.Sessions.from_runner_api(proto.window_fn, context)
        return Sessions(Microseconds(sessions.gap_size.micros))
    window_fn = context.windowing_strategies.get_by_id(strategy_id).windowfn
    if window_urn == common_urns.coders.INTERVAL_WINDOW.urn:
        return MergingWindows(window_fn)
    raise NotImplementedError(
        f"BeamlikeRunner merges interval windows only, and {type(window_fn).__name__} has windows of another kind"
    )


def windowing_of(proto: Any, windows: WindowFn) -> Windowing:
    """Converts a windowing strategy, with its windows converted already."""
    # The Python SDK writes FIRE_ALWAYS and EMIT_ALWAYS into every strategy. Its runners emit an empty pane on time
    # only if the trigger waits for the end of the window, and never an empty last pane.
    waits = "after_end_of_window" in str(proto.trigger)
    if_non_empty = proto.on_time_behavior == beam_protos.OnTimeBehavior.FIRE_IF_NONEMPTY or not waits
    return Windowing(
        windows=windows,
        trigger=trigger_of(proto.trigger),
        accumulation=_ACCUMULATIONS.get(proto.accumulation_mode, Accumulation.DISCARDING),
        timestamp_combiner=_COMBINERS.get(proto.output_time, TimestampCombiner.END_OF_WINDOW),
        allowed_lateness=Microseconds(lateness_of(proto)),
        on_time=IF_NON_EMPTY if if_non_empty else ALWAYS,
        closing=IF_NON_EMPTY,
        allow_data_loss=True,
    )
