"""The trigger state machines of BEAM_MODEL.md 4.3, one object per node of the trigger and window."""

from __future__ import annotations

from typing import Self

from windowing import AfterCount, AfterWatermark, DefaultTrigger, Repeatedly, Trigger


class Machine:
    """The state of one trigger: its finished bit, and what subclasses add. Clearing it is making a new one.

    `over` says whether the window's end has passed: eow in 4.3.
    """

    def __init__(self) -> None:
        self.finished = False

    def on_element(self) -> None: ...

    def should_fire(self, over: bool) -> bool:
        return False

    def on_fire(self, over: bool) -> None: ...

    def on_merge(self, parts: list[Self], over: bool) -> None:
        """Take over the state of the parts; called on a new machine."""


class Never(Machine):
    """Stands where AfterWatermark has no early or no late trigger."""


class DefaultMachine(Machine):
    def should_fire(self, over: bool) -> bool:
        return over


class AfterCountMachine(Machine):
    def __init__(self, trigger: AfterCount) -> None:
        super().__init__()
        self.needed = trigger.count
        self.count = 0

    def on_element(self) -> None:
        self.count += 1

    def should_fire(self, over: bool) -> bool:
        return self.count >= self.needed

    def on_fire(self, over: bool) -> None:
        self.count = 0
        self.finished = True

    def on_merge(self, parts: list[Self], over: bool) -> None:
        self.finished = any(part.finished for part in parts)
        if not self.finished:
            self.count = sum(part.count for part in parts)


class EndOfWindowMachine(Machine):
    """AfterWatermark with neither early nor late."""

    def should_fire(self, over: bool) -> bool:
        return over

    def on_fire(self, over: bool) -> None:
        self.finished = True

    def on_merge(self, parts: list[Self], over: bool) -> None:
        self.finished = over and all(part.finished for part in parts)


class EarlyAndLateMachine(Machine):
    """AfterWatermark with early, late or both. That `early` is finished means: the late phase has begun."""

    def __init__(self, trigger: AfterWatermark, merging: bool) -> None:
        super().__init__()
        self.trigger, self.merging = trigger, merging
        self.early, self.late = self._new_early(), self._new_late()

    def _new_early(self) -> Machine:
        return Never() if self.trigger.early is None else machine(self.trigger.early, self.merging)

    def _new_late(self) -> Machine:
        return Never() if self.trigger.late is None else machine(self.trigger.late, self.merging)

    def on_element(self) -> None:
        if self.merging or not self.early.finished:
            self.early.on_element()
        if self.merging or self.early.finished:
            self.late.on_element()

    def should_fire(self, over: bool) -> bool:
        if self.early.finished:
            return self.late.should_fire(over)
        return over or self.early.should_fire(over)

    def on_fire(self, over: bool) -> None:
        if self.early.finished:
            self.late = self._new_late()
        elif not over:
            self.early = self._new_early()
        else:
            self._begin_late_phase()
            self.late = self._new_late()
            self.finished = self.trigger.late is None

    def _begin_late_phase(self) -> None:
        self.early = self._new_early()
        self.early.finished = True

    def on_merge(self, parts: list[Self], over: bool) -> None:
        if over and all(part.early.finished for part in parts):
            self._begin_late_phase()
            self.late.on_merge([part.late for part in parts], over)
        else:
            self.early.on_merge([part.early for part in parts], over)
            self.early.finished = False


class RepeatedlyMachine(Machine):
    def __init__(self, trigger: Repeatedly, merging: bool) -> None:
        super().__init__()
        self.trigger, self.merging = trigger, merging
        self.sub = machine(trigger.trigger, merging)

    def on_element(self) -> None:
        self.sub.on_element()

    def should_fire(self, over: bool) -> bool:
        return self.sub.should_fire(over)

    def on_fire(self, over: bool) -> None:
        self.sub.on_fire(over)
        if self.sub.finished:
            self.sub = machine(self.trigger.trigger, self.merging)

    def on_merge(self, parts: list[Self], over: bool) -> None:
        self.sub.on_merge([part.sub for part in parts], over)


def machine(trigger: Trigger, merging: bool) -> Machine:
    """The state of a trigger in a new window."""
    match trigger:
        case DefaultTrigger():
            return DefaultMachine()
        case AfterCount():
            return AfterCountMachine(trigger)
        case AfterWatermark(early=None, late=None):
            return EndOfWindowMachine()
        case AfterWatermark():
            return EarlyAndLateMachine(trigger, merging)
        case Repeatedly():
            return RepeatedlyMachine(trigger, merging)
    raise TypeError(f"the model knows no {trigger!r}")
