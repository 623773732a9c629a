"""Triggers that are made of others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_
from typing import Final

import attrs
import polars as pl

from windowing.triggers.base import (
    NO_DEADLINE,
    Env,
    Finishing,
    Moment,
    Trigger,
    check_trigger,
    is_trigger,
    where,
)
from windowing.triggers.basic import Never

EVERYWHERE: Final = pl.lit(True)
"""The mask of children between which their parent chooses: its own would come again at each level below."""


@attrs.frozen(repr=False)
class Repeatedly(Trigger):
    """Begins its trigger anew each time that it has finished, so a window is never closed before its time."""

    trigger: Trigger = attrs.field(validator=is_trigger)

    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return self.trigger.ready(env, f"{at}.0", moment)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        env = self.trigger.on_fire(env, f"{at}.0", mask, moment)
        return self.trigger.reset(env, f"{at}.0", mask & self.trigger.finished(env, f"{at}.0"))

    def continuation(self) -> Trigger:
        paced = self.trigger.continuation()
        return paced if isinstance(paced, Repeatedly) else Repeatedly(paced)


@attrs.frozen(repr=False)
class OrFinally(Finishing):
    """Emits as `actual` does until `until` is ready, emits then for the last time, and finishes.

    It finishes with `actual`, too: write `Repeatedly(...).or_finally(...)` for more than one pane before.
    """

    actual: Trigger = attrs.field(validator=is_trigger)
    until: Trigger = attrs.field(validator=is_trigger)

    def __repr__(self) -> str:
        return f"{self.actual!r}.or_finally({self.until!r})"

    def children(self) -> tuple[Trigger, ...]:
        return (self.actual, self.until)

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        actual, until = _ready(self, env, at, moment)
        return (actual | until) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        last = self.until.ready(env, f"{at}.1", moment)
        actual = self.actual.on_fire(env, f"{at}.0", EVERYWHERE, moment)
        until = self.until.on_fire(env, f"{at}.1", EVERYWHERE, moment)
        cleared = self.actual.clear(env, f"{at}.0", EVERYWHERE)
        finished = where(last, self.until.finished(until, f"{at}.1"), self.actual.finished(actual, f"{at}.0"))
        # `until` is not cleared by what `actual` emits: it counts all elements.
        after = {
            **_either(self.actual.cells(f"{at}.0"), last, cleared, actual),
            **_either(self.until.cells(f"{at}.1"), last, until, env),
            f"{at}.done": finished,
        }
        return _where(mask, after, env)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        env = Trigger.on_merge(self, env, at, mask, moment)
        return _finish(env, at, mask, reduce(or_, _finished(self, env, at)))

    def may_finish(self) -> bool:
        return self.actual.may_finish() or self.until.may_finish()

    def continuation(self) -> Trigger:
        return Repeatedly(OrFinally(self.actual.continuation(), self.until.continuation()))


def _are_triggers(owner: object, attribute: attrs.Attribute[tuple[Trigger, ...]], value: object) -> None:
    name = type(owner).__name__
    assert isinstance(value, tuple)
    if not value:
        raise TypeError(
            f"{name}: it needs at least one trigger, as in {name}(AfterCount(100), AfterWatermark())"
        )
    for number, trigger in enumerate(value, start=1):
        if isinstance(trigger, list | tuple):
            raise TypeError(
                f"{name}: argument {number} must be a trigger, not {trigger!r}; {name}(*triggers)?"
            )
        check_trigger(name, f"argument {number}", trigger)


def _listed(triggers: tuple[Trigger, ...]) -> str:
    return ", ".join(map(repr, triggers))


@attrs.frozen(repr=False, init=False)
class _OfMany(Finishing):
    """Of any number of triggers, side by side."""

    triggers: tuple[Trigger, ...] = attrs.field(validator=_are_triggers, repr=_listed)

    def __init__(self, *triggers: Trigger) -> None:
        self.__attrs_init__(triggers)

    def children(self) -> tuple[Trigger, ...]:
        return self.triggers

    def _of_continuations(self) -> tuple[Trigger, ...]:
        return tuple(child.continuation() for child in self.triggers)


@attrs.frozen(repr=False, init=False)
class AfterAny(_OfMany):
    """Emits once, when the first of its triggers is ready."""

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return reduce(or_, _ready_or_finished(self, env, at, moment)) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        after = {f"{at}.done": EVERYWHERE}
        for index, ready in enumerate(_ready(self, env, at, moment)):
            child, place = self.triggers[index], f"{at}.{index}"
            fired = child.on_fire(env, place, EVERYWHERE, moment)
            after |= _either(child.cells(place), ready, fired, child.clear(env, place, EVERYWHERE))
        return _where(mask, after, env)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        env = Trigger.on_merge(self, env, at, mask, moment)
        return _finish(env, at, mask, reduce(or_, _finished(self, env, at)))

    def may_finish(self) -> bool:
        # It finishes when it fires, whatever its triggers do; among those that are never ready it never does.
        return not all(isinstance(child, Never) for child in self.triggers)

    def continuation(self) -> Trigger:
        return AfterAny(*self._of_continuations())


@attrs.frozen(repr=False, init=False)
class AfterAll(_OfMany):
    """Emits once, when all its triggers are ready."""

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        for index, done in enumerate(_finished(self, env, at)):
            env = self.triggers[index].on_elements(env, f"{at}.{index}", mask & ~done, count, moment)
        return env

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return reduce(and_, _ready_or_finished(self, env, at, moment)) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        for index, child in enumerate(self.triggers):
            env = child.on_fire(env, f"{at}.{index}", mask, moment)
        return self.mark(env, at, mask, True)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        env = Trigger.on_merge(self, env, at, mask, moment)
        return _finish(env, at, mask, reduce(and_, _finished(self, env, at)))

    def may_finish(self) -> bool:
        # It finishes when it fires; with one that is never ready it never does.
        return not any(isinstance(child, Never) for child in self.triggers)

    def continuation(self) -> Trigger:
        return AfterAll(*self._of_continuations())


@attrs.frozen(repr=False, init=False)
class AfterEach(_OfMany):
    """Emits as its first trigger does until that has finished, then as the second, and so on."""

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        for index, current in enumerate(self._current(env, at)):
            # A merge may make an earlier trigger unfinished, so in sessions all count all elements.
            takes = mask if moment.merging else mask & current
            env = self.triggers[index].on_elements(env, f"{at}.{index}", takes, count, moment)
        return env

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        both = zip(self._current(env, at), _ready(self, env, at, moment), strict=True)
        return reduce(or_, [current & ready for current, ready in both])

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        for index, current in enumerate(self._current(env, at)):
            child, place = self.triggers[index], f"{at}.{index}"
            env = child.on_fire(env, place, mask & current, moment)
            if moment.merging:
                env = child.clear(env, place, mask)
        return _finish(env, at, mask, reduce(and_, _finished(self, env, at)))

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        after: dict[str, pl.Expr] = {}
        prior = EVERYWHERE
        for index, child in enumerate(self.triggers):
            place = f"{at}.{index}"
            merged = child.on_merge(env, place, EVERYWHERE, moment)
            after |= _either(child.cells(place), prior, merged, child.reset(env, place, EVERYWHERE))
            prior = prior & child.finished(merged, place)
        return _where(mask, {**after, f"{at}.done": prior}, env)

    def deadline(self, env: Env, at: str, moment: Moment, clock: str) -> pl.Expr:
        due = NO_DEADLINE
        for index, current in enumerate(self._current(env, at)):
            child, place = self.triggers[index], f"{at}.{index}"
            due = where(current, child.deadline(env, place, moment, clock), due)
        return due

    def may_finish(self) -> bool:
        return all(child.may_finish() for child in self.triggers)

    def continuation(self) -> Trigger:
        return Repeatedly(AfterAny(*self._of_continuations()))

    def _current(self, env: Env, at: str) -> list[pl.Expr]:
        """Of each trigger, whether it is the first that has not finished."""
        current, prior = [], EVERYWHERE
        for done in _finished(self, env, at):
            current.append(prior & ~done)
            prior = prior & done
        return current


def _ready(trigger: Trigger, env: Env, at: str, moment: Moment) -> list[pl.Expr]:
    return [child.ready(env, f"{at}.{index}", moment) for index, child in enumerate(trigger.children())]


def _finished(trigger: Trigger, env: Env, at: str) -> list[pl.Expr]:
    return [child.finished(env, f"{at}.{index}") for index, child in enumerate(trigger.children())]


def _ready_or_finished(trigger: Trigger, env: Env, at: str, moment: Moment) -> list[pl.Expr]:
    both = zip(_ready(trigger, env, at, moment), _finished(trigger, env, at), strict=True)
    return [ready | finished for ready, finished in both]


def _either(cells: Iterable[str], condition: pl.Expr, new: Env, old: Env) -> dict[str, pl.Expr]:
    return {name: where(condition, new[name], old[name]) for name in cells}


def _where(mask: pl.Expr, after: Env, env: Env) -> Env:
    return {**env, **_either(after, mask, after, env)}


def _finish(env: Env, at: str, mask: pl.Expr, finished: pl.Expr) -> Env:
    """With the finished bit set to this where the mask holds."""
    done = f"{at}.done"
    return {**env, done: where(mask, finished, env[done])}
