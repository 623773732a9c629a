"""A naive interpreter of the event-time rules, one element and one key at a time, written to be read.

It is the oracle of the grouping stage and shares no semantics with it: it reads only sizes, counts and children of the
declarations. Numbers such as 4.1 are sections of BEAM_MODEL.md; "(here)" marks this project's decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

import attrs

from tests.support.model_clocks import Clocks, Now
from tests.support.model_times import Dropped, Element, Key, Placed, chosen, combine, output_time
from tests.support.model_triggers import Machine, machine
from tests.support.model_windows import (
    GLOBAL_WINDOW,
    MAX_TIME,
    MIN_TIME,
    Window,
    assign,
    maximum,
    merge,
    merge_windows,
)
from windowing import (
    Accumulation,
    TimestampCombiner,
    Windowing,
)

__all__ = ["GLOBAL_WINDOW", "MAX_TIME", "MIN_TIME", "Element", "Key", "Model", "Pane", "Step", "Window"]
__all__ += ["assign", "chosen", "merge"]

EARLY, ON_TIME, LATE = "early", "on_time", "late"


# --- Panes (4.2) and the grouping engine (4.1) ---


@attrs.frozen
class Pane:
    """The content of a window that is emitted at once; if `retracted`, the part of it that is retracted."""

    key: Key
    window: Window
    values: list[int]
    timestamp: int
    timing: str
    index: int
    nonspeculative_index: int
    first: bool
    last: bool
    retracted: bool = False


@attrs.frozen
class Step:
    """The result of one step: panes, elements dropped as (element, window) pairs or without a window, and the state.

    `hold` is the least hold; `live` counts open windows and closed windows that are still remembered. `held` has the
    hold of each pending element, in order, if percentile watermarks are used.
    """

    panes: list[Pane]
    dropped: list[Dropped]
    late: int
    closed: int
    nowhere: int
    output_watermark: int
    hold: int | None
    live: int
    held: list[int] = attrs.Factory(list)


@attrs.define
class State:
    """The state of one key's open window."""

    trigger: Machine
    values: list[tuple[int, int]] = attrs.Factory(list)  # each with its number, in order of arrival (here)
    pending: int = 0  # elements since the last pane
    hold: int | None = None  # output time of the elements since the last pane that were not late
    standing: int | None = None  # that of all elements that were not late, since the first one (here)
    previous: Pane | None = None
    outstanding: list[Pane] = attrs.Factory(list)  # panes that the next one replaces (here)
    outstanding_hold: int | None = None  # where these hold the output watermark (here)


class Model:
    """The grouping of a windowing. Call `step` with each bundle; tests may read `active` and `closed`."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.merging = windowing.windows.merging
        self.active: dict[tuple[Key, Window], State] = {}
        self.closed: set[tuple[Key, Window]] = set()  # root trigger finished, not yet collected
        self.clocks = Clocks()
        self.arrivals = count()
        self.output_watermark = MIN_TIME
        self.input_before = MIN_TIME  # the input watermark of the step before

    @property
    def input_watermark(self) -> int:
        return self.clocks.watermark

    def step(
        self,
        elements: Iterable[Element],
        watermark: int,
        processing_time: int = 0,
        percentiles: Mapping[int, int] | None = None,
    ) -> Step:
        """Processes one bundle with the watermarks of the step before, then moves the clocks to these (here).

        Processing time is that of this step throughout. Where no clock moves, no timer is evaluated.
        """
        before = self.clocks
        self.input_before = before.watermark
        after = before.advance(watermark, processing_time, percentiles or {})
        self.clocks = attrs.evolve(before, processing_time=after.processing_time)
        panes, dropped = self._process(elements)
        self.clocks = after
        if after.moved_since(before):
            panes += self._move_clocks(before)
        self._let_go()
        hold = self._derive_output_watermark()
        live = len(self.active) + len(self.closed)
        late, closed, nowhere = (
            sum(reason == why for *_, reason in dropped) for why in ("late", "closed", "no window")
        )
        held = self._held() if percentiles else []
        return Step(panes, dropped, late, closed, nowhere, self.output_watermark, hold, live, held)

    def _held(self) -> list[int]:
        """Returns the hold of each pending element: the hold of its window."""
        holds = [[state.hold] * state.pending for state in self.active.values() if state.hold is not None]
        return sorted(hold for of_window in holds for hold in of_window)

    def _process(self, elements: Iterable[Element]) -> tuple[list[Pane], list[Dropped]]:
        """Processes elements: 4.1 process_elements."""
        elements = list(elements)
        assigned = self._assign(elements)
        found = {place.number for place in assigned}
        nowhere = [element for number, element in enumerate(elements) if number not in found]
        too_late = [place for place in assigned if self._expired(place.window)]
        placed = [place for place in assigned if not self._expired(place.window)]
        if self.merging:
            placed = self._merge_windows(placed)
        too_few = [place for place in placed if (place.key, place.window) in self.closed]
        placed = [place for place in placed if (place.key, place.window) not in self.closed]
        for place in placed:
            self._add(place)
        touched = dict.fromkeys((place.key, place.window) for place in placed)
        panes = [pane for at in touched if self._should_fire(*at) for pane in self._emit(*at)]
        dropped = [place.dropped("late") for place in too_late]
        dropped += [place.dropped("closed") for place in too_few]
        dropped += [(key, value, time, (None, None), "no window") for key, value, time in nowhere]
        return panes, dropped

    # Lateness (4.1, 4.7)

    def _over(self, window: Window) -> bool:
        return self._now(window).over

    def _now(self, window: Window) -> Now:
        return Now(self.clocks, window)

    def _expired(self, window: Window) -> bool:
        collection = maximum(window) + self.windowing.allowed_lateness
        return self.input_watermark > min(maximum(GLOBAL_WINDOW), collection)

    def _assign(self, elements: Iterable[Element]) -> list[Placed]:
        """Assigns each element to its windows: 4.1 step 0."""
        return [
            Placed(number, key, value, time, window, window)
            for number, (key, value, time) in enumerate(elements)
            for window in assign(self.windowing.windows, time, {"key": key, "value": value})
        ]

    # Merging (4.1 step 1)

    def _merge_windows(self, placed: list[Placed]) -> list[Placed]:
        """Returns the elements with merged windows, and merges the state of the windows that merge."""
        into: dict[tuple[Key, Window], Window] = {}
        for key in {place.key for place in placed}:
            active = {window for at, window in self.active if at == key}
            new = {place.window for place in placed if place.key == key}
            for parts, result in merge_windows(self.windowing.windows, active | new):
                into |= {(key, part): result for part in parts}
                self._merge_states(key, [part for part in parts if part in active], result)
        merged = [
            attrs.evolve(place, window=into.get((place.key, place.window), place.window)) for place in placed
        ]
        # An element in two windows that merge counts once.
        return list({(place.number, place.window): place for place in reversed(merged)}.values())[::-1]

    def _merge_states(self, key: Key, parts: list[Window], result: Window) -> None:
        """Merges the open windows `parts` into one; changes nothing if there is only that one (here)."""
        if parts in ([], [result]):
            return
        states = {part: self.active.pop((key, part)) for part in parts}
        merged = State(machine(self.windowing.trigger, self.merging))
        merged.trigger.on_merge([state.trigger for state in states.values()], self._now(result))
        assert not merged.trigger.finished
        merged.values = [value for state in states.values() for value in state.values]
        merged.pending = sum(state.pending for state in states.values())
        merged.hold = self._merged_hold(result, [state.hold for state in states.values()])
        merged.standing = combine(self.windowing, result, [state.standing for state in states.values()])
        merged.previous = states[result].previous if result in states else None  # others' are forgotten
        merged.outstanding = [pane for state in states.values() for pane in state.outstanding]
        holds = [state.outstanding_hold for state in states.values() if state.outstanding_hold is not None]
        merged.outstanding_hold = min(holds, default=None)
        self.active[key, result] = merged
        self.closed.discard((key, result))  # an open window takes the place of a closed one (here)

    def _merged_hold(self, result: Window, holds: list[int | None]) -> int | None:
        """Returns the hold of a merged window (2.5). A hold at its end is set again, and only if it is not late."""
        hold = combine(self.windowing, result, holds)
        if hold is None or self.windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
            return hold
        return None if hold < self.input_before else hold

    # Elements (4.1 step 3)

    def _add(self, place: Placed) -> None:
        state = self.active.get(at := (place.key, place.window))
        if state is None:
            state = self.active[at] = State(machine(self.windowing.trigger, self.merging))
        state.values.append((next(self.arrivals), place.value))
        state.pending += 1
        state.trigger.on_element(self._now(place.window))
        output = output_time(self.windowing, place)
        if output is not None and output >= self.input_before and not self._over(place.window):
            # 2.2, 3.3: it is not late
            state.hold = combine(self.windowing, place.window, (state.hold, output))
            state.standing = combine(self.windowing, place.window, (state.standing, output))

    # Panes (4.1 emit and fire_pane, 4.2, 4.6)

    def _should_fire(self, key: Key, window: Window) -> bool:
        return self.active[key, window].trigger.should_fire(self._now(window))

    def _emit(self, key: Key, window: Window) -> list[Pane]:
        state = self.active[key, window]
        state.trigger.on_fire(self._now(window))
        finished = state.trigger.finished
        panes = self._fire_pane(key, window, finished)
        if finished:
            del self.active[key, window]
            self.closed.add((key, window))
        elif self.windowing.accumulation is Accumulation.DISCARDING:
            state.values = []
        return panes

    def _fire_pane(self, key: Key, window: Window, finished: bool) -> list[Pane]:
        """Returns the retractions and the new pane; none if nothing is new and no option asks for an empty pane."""
        state = self.active[key, window]
        pane = self._describe(key, window, finished)
        empty = state.pending == 0
        state.pending, state.hold = 0, None
        wanted = (pane.timing == ON_TIME and self.windowing.on_time == "always") or (
            finished and self.windowing.closing == "always"
        )
        if empty and not wanted:
            return []  # suppressed panes are not counted
        retracted = [attrs.evolve(replaced, retracted=True) for replaced in state.outstanding]
        state.previous = pane
        if self.windowing.accumulation is Accumulation.RETRACTING:
            state.outstanding, state.outstanding_hold = [pane], pane.timestamp
        return [*retracted, pane]

    def _describe(self, key: Key, window: Window, finished: bool) -> Pane:
        state = self.active[key, window]
        timing = self._timing(window, state)
        retracting = self.windowing.accumulation is Accumulation.RETRACTING
        # The time of a pane that replaces others is that of all its elements, not of the new ones (here).
        time = state.standing if retracting else state.hold
        index, nonspeculative = 0, 0
        if state.previous is not None:
            index, nonspeculative = state.previous.index + 1, state.previous.nonspeculative_index + 1
        return Pane(
            key=key,
            window=window,
            values=[value for _, value in sorted(state.values)],
            # Section 0, 8; a hold that is after the window's end counts as its end (3.3).
            timestamp=maximum(window) if time is None else min(time, maximum(window)),
            timing=timing,
            index=index,
            nonspeculative_index=-1 if timing == EARLY else nonspeculative,
            first=state.previous is None,
            last=finished,
        )

    def _timing(self, window: Window, state: State) -> str:
        """Returns EARLY* ON_TIME? LATE*. Lateness depends on the window itself: other keys do not count (here)."""
        only_early_so_far = state.previous is None or state.previous.timing == EARLY
        promised = self.input_before if state.hold is None else min(self.input_before, state.hold)
        if maximum(window) < promised or not only_early_so_far:
            return LATE
        return ON_TIME if self._over(window) else EARLY

    # Clocks (4.1 on_timers) and watermark (3.1)

    def _move_clocks(self, before: Clocks) -> list[Pane]:
        """Decides once for each window with a due timer: garbage collection first, else the trigger."""
        panes = []
        for key, window in list(self.active):
            if self._expired(window):
                panes += self._fire_pane(key, window, finished=True)
                del self.active[key, window]
            elif self._wakes(before, key, window) and self._should_fire(key, window):
                panes += self._emit(key, window)
        self.closed = {(key, window) for key, window in self.closed if not self._expired(window)}
        return panes

    def _wakes(self, before: Clocks, key: Key, window: Window) -> bool:
        """True if a timer is due: every window has one at its end, and its trigger may have set others."""
        then, now = Now(before, window), self._now(window)
        return now.over > then.over or self.active[key, window].trigger.wakes(then, now)

    def _let_go(self) -> None:
        """Sets the hold of panes that may be retracted; of a window that is over it is later by the lateness (here)."""
        lateness = self.windowing.allowed_lateness
        for (_, window), state in self.active.items():
            if self._over(window) and state.outstanding:
                earliest = min(pane.timestamp for pane in state.outstanding)
                state.outstanding_hold = min(earliest + lateness, maximum(GLOBAL_WINDOW) + 1)

    def _derive_output_watermark(self) -> int | None:
        """Moves the output watermark up to the least hold (end and collection timers never bind)."""
        both = [hold for state in self.active.values() for hold in (state.hold, state.outstanding_hold)]
        holds = [hold for hold in both if hold is not None]
        self.output_watermark = max(self.output_watermark, min([self.input_watermark, *holds]))
        return min(holds, default=None)
