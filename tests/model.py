"""A naive interpreter of the event-time rules, one element and one key at a time, written to be read.

The oracle of the grouping stage. It shares no semantics with it: of the declarations it reads sizes, counts
and children only. Numbers such as 4.1 are sections of BEAM_MODEL.md; "(here)" marks this project's decisions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import attrs

from tests.model_triggers import Machine, machine
from windowing import (
    Accumulation,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
    Windowing,
)

Key = Hashable
Window = tuple[int, int]  # [start, end) in microseconds (1.2)
Element = tuple[Key, int, int]  # key, value, event time in microseconds
Placed = tuple[Key, int, int, Window]  # an element in one of its windows

MIN_TIME = -9223372036854775 * 1000  # 1.1: the portable constants are milliseconds, a tick here is 1 us
MAX_TIME = 9223372036854775 * 1000
GLOBAL_WINDOW = (MIN_TIME, MAX_TIME - 86_400_000 * 1000)
EARLY, ON_TIME, LATE = "early", "on_time", "late"


# --- Windows (1.2 to 1.5) ---


def maximum(window: Window) -> int:
    """The last time inside the window; a window is over when the watermark is past it (section 0, 1)."""
    return window[1] - 1


def assign(windows: WindowFn, time: int) -> list[Window]:
    """The windows that an element of this time belongs to: none, one or several."""
    match windows:
        case FixedWindows():  # 1.3; Python's % is floorMod
            start = time - (time - windows.offset) % windows.size
            return [(start, start + windows.size)]
        case SlidingWindows():  # 1.4
            last = time - (time - windows.offset) % windows.period
            starts = range(last, time - windows.size, -windows.period)
            return [(start, start + windows.size) for start in starts]
        case Sessions():  # 1.5: a proto-window, before merging
            return [(time, time + windows.gap)]
        case GlobalWindows():
            return [GLOBAL_WINDOW]
    raise TypeError(f"the model knows no {windows!r}")


def merge(windows: Iterable[Window]) -> list[tuple[list[Window], Window]]:
    """Runs of overlapping windows, each as (parts, union); touching windows do not overlap (1.5)."""
    runs: list[tuple[list[Window], Window]] = []
    for window in sorted(windows):
        if runs and runs[-1][1][1] > window[0]:
            parts, (start, end) = runs.pop()
            runs.append(([*parts, window], (start, max(end, window[1]))))
        else:
            runs.append(([window], window))
    return runs


# --- Timestamp combiners (2.1, 2.3) ---


def output_time(windowing: Windowing, window: Window, time: int) -> int:
    """The output time that one element alone gives: assign(w, ts)."""
    combiner, windows = windowing.timestamp_combiner, windowing.windows
    if combiner is TimestampCombiner.END_OF_WINDOW:
        return maximum(window)
    if combiner is TimestampCombiner.EARLIEST and isinstance(windows, SlidingWindows):
        return max(time, window[1] - windows.period)  # the overlap adjustment
    return time


def combine(windowing: Windowing, window: Window, times: Iterable[int | None]) -> int | None:
    """The output time of several in one window: merge(into, ts...); None where there is no time."""
    known = [time for time in times if time is not None]
    if not known:
        return None
    if windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW:
        return maximum(window)
    return min(known) if windowing.timestamp_combiner is TimestampCombiner.EARLIEST else max(known)


# --- Panes (4.2) and the grouping engine (4.1) ---


@attrs.frozen
class Pane:
    """What a window emits at once."""

    key: Key
    window: Window
    values: list[int]
    timestamp: int
    timing: str
    index: int
    nonspeculative_index: int
    first: bool
    last: bool


@attrs.frozen
class Step:
    """What one step gives: panes, elements dropped as (element, window) pairs, and what is left.

    `hold` is the least hold, `live` counts the open windows and the closed ones that are still remembered.
    """

    panes: list[Pane]
    late: int
    closed: int
    output_watermark: int
    hold: int | None
    live: int


@attrs.define
class State:
    """All that is kept of one key's open window."""

    trigger: Machine
    values: list[int] = attrs.Factory(list)
    pending: int = 0  # elements since the last pane
    hold: int | None = None  # output time of the elements since the last pane that were not late
    previous: Pane | None = None


class Model:
    """The grouping of a windowing. Call `step` with each bundle; `active` and `closed` may be looked at."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.merging = isinstance(windowing.windows, Sessions)
        self.active: dict[tuple[Key, Window], State] = {}
        self.closed: set[tuple[Key, Window]] = set()  # root trigger finished, not yet collected
        self.input_watermark = MIN_TIME
        self.output_watermark = MIN_TIME

    def step(self, elements: Iterable[Element], watermark: int, processing_time: int = 0) -> Step:
        """One bundle with the watermarks of the step before, then the clock moves to `watermark` (here)."""
        placed, late = self._assign(elements)
        if self.merging:
            placed = self._merge_windows(placed)
        closed = sum(self._is_closed(key, window) for key, _, _, window in placed)
        placed = [place for place in placed if not self._is_closed(place[0], place[3])]
        for key, value, time, window in placed:
            self._add(key, value, time, window)
        touched = {(key, window): None for key, _, _, window in placed}
        panes = [self._emit(*at) for at in touched if self._should_fire(*at)]
        self.input_watermark = max(self.input_watermark, watermark)
        panes += self._move_clock()
        hold = self._derive_output_watermark()
        live = len(self.active) + len(self.closed)
        emitted = [pane for pane in panes if pane is not None]
        return Step(emitted, late, closed, self.output_watermark, hold, live)

    # Lateness (4.1, 4.7)

    def _over(self, window: Window) -> bool:
        return self.input_watermark > maximum(window)

    def _expired(self, window: Window) -> bool:
        collection = maximum(window) + self.windowing.allowed_lateness
        return self.input_watermark > min(maximum(GLOBAL_WINDOW), collection)

    def _is_closed(self, key: Key, window: Window) -> bool:
        return (key, window) in self.closed

    def _assign(self, elements: Iterable[Element]) -> tuple[list[Placed], int]:
        """4.1 step 0: (key, value, time, window) of what is not too late for its own window, and what is."""
        exploded = [
            (key, value, time, window)
            for key, value, time in elements
            for window in assign(self.windowing.windows, time)
        ]
        placed = [place for place in exploded if not self._expired(place[3])]
        return placed, len(exploded) - len(placed)

    # Merging (4.1 step 1)

    def _merge_windows(self, placed: list[Placed]) -> list[Placed]:
        """The same with merged windows; the state of the windows that merge is merged on the way."""
        target: dict[tuple[Key, Window], Window] = {}
        for key in {place[0] for place in placed}:
            active = {window for at, window in self.active if at == key}
            new = {place[3] for place in placed if place[0] == key}
            for parts, union in merge(active | new):
                target |= {(key, part): union for part in parts}
                if len(parts) > 1:
                    self._merge_states(key, [part for part in parts if part in active], union)
        return [(key, value, time, target[key, window]) for key, value, time, window in placed]

    def _merge_states(self, key: Key, parts: list[Window], union: Window) -> None:
        """The open windows `parts` become one; nothing changes if one is all and spans the rest (here)."""
        if parts in ([], [union]):
            return
        states = {part: self.active.pop((key, part)) for part in parts}
        merged = State(machine(self.windowing.trigger, self.merging))
        merged.trigger.on_merge([state.trigger for state in states.values()], self._over(union))
        merged.values = [value for state in states.values() for value in state.values]
        merged.pending = sum(state.pending for state in states.values())
        merged.hold = combine(self.windowing, union, (state.hold for state in states.values()))  # 2.5
        merged.previous = states[union].previous if union in states else None  # panes of others are forgotten
        self.active[key, union] = merged
        self.closed.discard((key, union))  # an open window takes the place of a closed one (here)

    # Elements (4.1 step 3)

    def _add(self, key: Key, value: int, time: int, window: Window) -> None:
        state = self.active.get((key, window))
        if state is None:
            state = self.active[key, window] = State(machine(self.windowing.trigger, self.merging))
        state.values.append(value)
        state.pending += 1
        state.trigger.on_element()
        output = output_time(self.windowing, window, time)
        if output >= self.output_watermark and not self._over(window):  # 2.2, 3.3: else late, no element hold
            state.hold = combine(self.windowing, window, (state.hold, output))

    # Panes (4.1 emit and fire_pane, 4.2)

    def _should_fire(self, key: Key, window: Window) -> bool:
        return self.active[key, window].trigger.should_fire(self._over(window))

    def _emit(self, key: Key, window: Window) -> Pane | None:
        state = self.active[key, window]
        state.trigger.on_fire(self._over(window))
        finished = state.trigger.finished
        pane = self._fire_pane(key, window, finished)
        if finished:
            del self.active[key, window]
            self.closed.add((key, window))
        elif self.windowing.accumulation is Accumulation.DISCARDING:
            state.values = []
        return pane

    def _fire_pane(self, key: Key, window: Window, finished: bool) -> Pane | None:
        """The pane, unless there is nothing new to say: only an on-time pane may be empty (4.6)."""
        state = self.active[key, window]
        pane = self._describe(key, window, finished)
        empty = state.pending == 0
        state.pending, state.hold = 0, None
        if empty and pane.timing != ON_TIME:
            return None  # suppressed panes are not counted
        state.previous = pane
        return pane

    def _describe(self, key: Key, window: Window, finished: bool) -> Pane:
        state = self.active[key, window]
        timing = self._timing(window, state.previous)
        index, nonspeculative = 0, 0
        if state.previous is not None:
            index, nonspeculative = state.previous.index + 1, state.previous.nonspeculative_index + 1
        return Pane(
            key=key,
            window=window,
            values=sorted(state.values),
            timestamp=maximum(window) if state.hold is None else state.hold,  # section 0, 8
            timing=timing,
            index=index,
            nonspeculative_index=-1 if timing == EARLY else nonspeculative,
            first=state.previous is None,
            last=finished,
        )

    def _timing(self, window: Window, previous: Pane | None) -> str:
        """EARLY* ON_TIME? LATE*. The output watermark is that of before the step in both phases (here)."""
        only_early_so_far = previous is None or previous.timing == EARLY
        if maximum(window) < self.output_watermark or not only_early_so_far:
            return LATE
        return ON_TIME if self._over(window) else EARLY

    # Clock (4.1 on_timers) and watermark (3.1)

    def _move_clock(self) -> list[Pane | None]:
        """One decision per window: garbage collection first, else the trigger."""
        panes = []
        for key, window in list(self.active):
            if self._expired(window):
                panes.append(self._fire_pane(key, window, finished=True))
                del self.active[key, window]
            elif self._should_fire(key, window):
                panes.append(self._emit(key, window))
        self.closed = {(key, window) for key, window in self.closed if not self._expired(window)}
        return panes

    def _derive_output_watermark(self) -> int | None:
        """Not past any hold, and never backwards (end and collection timers never bind): the least hold."""
        holds = [state.hold for state in self.active.values() if state.hold is not None]
        self.output_watermark = max(self.output_watermark, min([self.input_watermark, *holds]))
        return min(holds, default=None)
