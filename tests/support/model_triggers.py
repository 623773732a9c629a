"""The trigger state machines of BEAM_MODEL.md 4.3, one object per node of the trigger and window.

Terms of that table: "clear" removes a machine's counts and timers, but not its finished bit; "un-finish" resets only
that bit; "reset the subtree" and "clear, un-finish" make a new machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tests.support.model_clocks import Now
from windowing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)


class Machine:
    """The state of one trigger: its finished bit, and the fields of subclasses."""

    def __init__(self) -> None:
        self.finished = False

    def on_element(self, now: Now) -> None: ...

    def should_fire(self, now: Now) -> bool:
        return False

    def on_fire(self, now: Now) -> None: ...

    def on_merge(self, parts: list[Self], now: Now) -> None:
        """Takes over the state of the parts; called on a new machine."""

    def clear(self) -> None: ...

    def wakes(self, before: Now, after: Now) -> bool:
        """True if a timer of the trigger is due; the timer at the window's end, which all have, does not count."""
        return False


# --- Without children ---


class NeverMachine(Machine):
    """Never fires; also used where AfterWatermark has no early or no late trigger."""


class AlwaysMachine(Machine):
    def should_fire(self, now: Now) -> bool:
        return True


class DefaultMachine(Machine):
    def should_fire(self, now: Now) -> bool:
        return now.over


class AfterCountMachine(Machine):
    def __init__(self, trigger: AfterCount) -> None:
        super().__init__()
        self.needed = trigger.count
        self.count = 0

    def on_element(self, now: Now) -> None:
        self.count += 1

    def should_fire(self, now: Now) -> bool:
        return self.count >= self.needed

    def on_fire(self, now: Now) -> None:
        self.clear()
        self.finished = True

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.finished = any(part.finished for part in parts)
        if not self.finished:
            self.count = sum(part.count for part in parts)

    def clear(self) -> None:
        self.count = 0


class ProcessingTimeMachine(Machine):
    """Fires at the time that `target_of` computes from the processing time of the first element."""

    def __init__(self, target_of: Callable[[int], int]) -> None:
        super().__init__()
        self.target_of = target_of
        self.target: int | None = None

    def on_element(self, now: Now) -> None:
        if self.target is None:
            self.target = self.target_of(now.clocks.processing_time)

    def should_fire(self, now: Now) -> bool:
        return self.target is not None and now.clocks.processing_time > self.target

    def on_fire(self, now: Now) -> None:
        self.clear()
        self.finished = True

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.finished = any(part.finished for part in parts)  # as a count does (here)
        if not self.finished:
            self.target = min((part.target for part in parts if part.target is not None), default=None)

    def clear(self) -> None:
        self.target = None

    def wakes(self, before: Now, after: Now) -> bool:
        if self.target is None or self.finished:
            return False
        return before.clocks.processing_time <= self.target < after.clocks.processing_time


class EndOfWindowMachine(Machine):
    """AfterWatermark with neither early nor late, by the watermark or by a percentile watermark (here)."""

    def __init__(self, percentile: int | None) -> None:
        super().__init__()
        self.percentile = percentile

    def should_fire(self, now: Now) -> bool:
        return now.over if self.percentile is None else now.passed(self.percentile)

    def on_fire(self, now: Now) -> None:
        self.finished = True

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.finished = self.should_fire(now) and all(part.finished for part in parts)

    def wakes(self, before: Now, after: Now) -> bool:
        return (
            self.percentile is not None
            and not self.finished
            and after.passed(self.percentile) > before.passed(self.percentile)
        )


# --- With children ---


class EarlyAndLateMachine(Machine):
    """AfterWatermark with early, late or both. If `early` is finished, the late phase has begun."""

    def __init__(self, trigger: AfterWatermark, merging: bool) -> None:
        super().__init__()
        self.trigger, self.merging = trigger, merging
        self.early, self.late = self._new_early(), self._new_late()

    def _new_early(self) -> Machine:
        return machine(self.trigger.early or Never(), self.merging)

    def _new_late(self) -> Machine:
        return machine(self.trigger.late or Never(), self.merging)

    def on_element(self, now: Now) -> None:
        if self.merging or not self.early.finished:
            self.early.on_element(now)
        if self.merging or self.early.finished:
            self.late.on_element(now)

    def should_fire(self, now: Now) -> bool:
        if self.early.finished:
            return self.late.should_fire(now)
        return now.over or self.early.should_fire(now)

    def on_fire(self, now: Now) -> None:
        if self.early.finished:
            self.late = self._new_late()
        elif not now.over:
            self.early = self._new_early()
        else:
            self._begin_late_phase()
            self.late = self._new_late()

    def wakes(self, before: Now, after: Now) -> bool:
        return (self.late if self.early.finished else self.early).wakes(before, after)

    def _begin_late_phase(self) -> None:
        self.early = self._new_early()
        self.early.finished = True
        self.finished = self.trigger.late is None

    def on_merge(self, parts: list[Self], now: Now) -> None:
        if now.over and all(part.early.finished for part in parts):
            self._begin_late_phase()
            self.late.on_merge([part.late for part in parts], now)
        else:
            self.early.on_merge([part.early for part in parts], now)
            self.early.finished = False

    def clear(self) -> None:
        self.early.clear()
        self.late.clear()


class RepeatedlyMachine(Machine):
    def __init__(self, trigger: Repeatedly, merging: bool) -> None:
        super().__init__()
        self.trigger, self.merging = trigger, merging
        self.sub = machine(trigger.trigger, merging)

    def on_element(self, now: Now) -> None:
        self.sub.on_element(now)

    def should_fire(self, now: Now) -> bool:
        return self.sub.should_fire(now)

    def on_fire(self, now: Now) -> None:
        self.sub.on_fire(now)
        if self.sub.finished:
            self.sub = machine(self.trigger.trigger, self.merging)

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.sub.on_merge([part.sub for part in parts], now)

    def clear(self) -> None:
        self.sub.clear()

    def wakes(self, before: Now, after: Now) -> bool:
        return self.sub.wakes(before, after)


class Composite(Machine):
    """The state of a trigger made of several triggers."""

    def __init__(self, triggers: tuple[Trigger, ...], merging: bool) -> None:
        super().__init__()
        self.merging = merging
        self.subs = [machine(trigger, merging) for trigger in triggers]

    @property
    def unfinished(self) -> list[Machine]:
        return [sub for sub in self.subs if not sub.finished]

    def merge_subs(self, parts: list[Any], now: Now) -> None:
        for sub, of_parts in zip(self.subs, zip(*(part.subs for part in parts), strict=True), strict=True):
            sub.on_merge(list(of_parts), now)

    def clear(self) -> None:
        for sub in self.subs:
            sub.clear()

    def wakes(self, before: Now, after: Now) -> bool:
        return any(sub.wakes(before, after) for sub in self.subs)


class AfterAnyMachine(Composite):
    def on_element(self, now: Now) -> None:
        for sub in self.subs:
            sub.on_element(now)

    def should_fire(self, now: Now) -> bool:
        return any(sub.finished or sub.should_fire(now) for sub in self.subs)

    def on_fire(self, now: Now) -> None:
        for sub in self.subs:
            if sub.should_fire(now):
                sub.on_fire(now)
            else:
                sub.clear()
        self.finished = True

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.merge_subs(parts, now)
        self.finished = any(sub.finished for sub in self.subs)


class AfterAllMachine(Composite):
    def on_element(self, now: Now) -> None:
        for sub in self.unfinished:
            sub.on_element(now)

    def should_fire(self, now: Now) -> bool:
        return all(sub.should_fire(now) for sub in self.unfinished)

    def on_fire(self, now: Now) -> None:
        for sub in self.subs:
            sub.on_fire(now)
        self.finished = True

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.merge_subs(parts, now)
        self.finished = not self.unfinished


class AfterEachMachine(Composite):
    def on_element(self, now: Now) -> None:
        for sub in self.subs if self.merging else self.unfinished[:1]:
            sub.on_element(now)

    def should_fire(self, now: Now) -> bool:
        return any(sub.should_fire(now) for sub in self.unfinished[:1])

    def on_fire(self, now: Now) -> None:
        for sub in self.unfinished[:1]:
            sub.on_fire(now)
        if self.merging:
            self.clear()
        self.finished = not self.unfinished

    def on_merge(self, parts: list[Self], now: Now) -> None:
        for index, sub in enumerate(self.subs):
            sub.on_merge([part.subs[index] for part in parts], now)
            if not sub.finished:
                break  # the rest is as new
        self.finished = not self.unfinished

    def wakes(self, before: Now, after: Now) -> bool:
        return any(sub.wakes(before, after) for sub in self.unfinished[:1])


class OrFinallyMachine(Composite):
    def __init__(self, trigger: OrFinally, merging: bool) -> None:
        super().__init__((trigger.actual, trigger.until), merging)
        self.actual, self.until = self.subs

    def on_element(self, now: Now) -> None:
        self.actual.on_element(now)
        self.until.on_element(now)

    def should_fire(self, now: Now) -> bool:
        return self.actual.should_fire(now) or self.until.should_fire(now)

    def on_fire(self, now: Now) -> None:
        if self.until.should_fire(now):
            self.until.on_fire(now)
            self.actual.clear()
        else:
            self.actual.on_fire(now)
        self.finished = self.actual.finished or self.until.finished

    def on_merge(self, parts: list[Self], now: Now) -> None:
        self.merge_subs(parts, now)
        self.finished = self.actual.finished or self.until.finished


def target(trigger: AfterProcessingTime, now: int) -> int:
    """Returns `now` plus the delay, rounded up to the next multiple of `align_to` since the offset."""
    point = now + trigger.delay
    if trigger.align_to is None:
        return point
    rest = (point - trigger.offset) % trigger.align_to
    return point if rest == 0 else point + trigger.align_to - rest


def machine(trigger: Trigger, merging: bool) -> Machine:
    """Returns the state of a trigger in a new window."""
    match trigger:
        case Never():
            return NeverMachine()
        case Always():
            return AlwaysMachine()
        case DefaultTrigger():
            return DefaultMachine()
        case AfterCount():
            return AfterCountMachine(trigger)
        case AfterProcessingTime():
            return ProcessingTimeMachine(lambda now: target(trigger, now))
        case AfterSynchronizedProcessingTime():
            return ProcessingTimeMachine(lambda now: now)
        case AfterWatermark(early=None, late=None):
            return EndOfWindowMachine(trigger.percentile)
        case AfterWatermark():
            return EarlyAndLateMachine(trigger, merging)
        case Repeatedly():
            return RepeatedlyMachine(trigger, merging)
        case AfterAny():
            return AfterAnyMachine(trigger.triggers, merging)
        case AfterAll():
            return AfterAllMachine(trigger.triggers, merging)
        case AfterEach():
            return AfterEachMachine(trigger.triggers, merging)
        case OrFinally():
            return OrFinallyMachine(trigger, merging)
    raise TypeError(f"the model knows no {trigger!r}")
