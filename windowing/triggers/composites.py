"""Composite triggers of any number of triggers: any, all, or one after the other."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import attrs
import polars as pl

from windowing.triggers.base import (
    EVERYWHERE,
    NO_DEADLINE,
    Env,
    Finishing,
    Repeatedly,
    Trigger,
    TriggerContext,
    all_where,
    check_trigger,
    each_finished,
    each_ready,
    either,
    finish,
    where,
)
from windowing.triggers.basic import Never


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
    """The base class of triggers that consist of any number of triggers."""

    triggers: tuple[Trigger, ...] = attrs.field(validator=_are_triggers, repr=_listed)

    def __init__(self, *triggers: Trigger) -> None:
        self.__attrs_init__(triggers)

    def children(self) -> tuple[Trigger, ...]:
        return self.triggers

    def _of_continuations(self) -> tuple[Trigger, ...]:
        return tuple(child.continuation() for child in self.triggers)


@attrs.frozen(repr=False, init=False)
class AfterAny(_OfMany):
    """The trigger that emits once, when the first of its triggers is ready.

    Example, with the `plays` of `bl.Collection`:
        >>> either = bl.Repeatedly(bl.AfterAny(bl.AfterCount(2), bl.AfterProcessingTime("10s")))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=either)
        >>> days.aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return reduce(or_, _ready_or_finished(self, env, at, context)) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        after = {f"{at}.done": EVERYWHERE}
        for index, ready in enumerate(each_ready(self, env, at, context)):
            child, place = self.triggers[index], f"{at}.{index}"
            fired = child.on_fire(env, place, EVERYWHERE, context)
            after |= either(child.cells(place), ready, fired, child.clear(env, place, EVERYWHERE))
        return all_where(mask, after, env)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        env = Trigger.on_merge(self, env, at, mask, context)
        return finish(env, at, mask, reduce(or_, each_finished(self, env, at)))

    def may_finish(self) -> bool:
        # It finishes when it fires, even if the child that fired does not. It never fires if all children are Never.
        return not all(isinstance(child, Never) for child in self.triggers)

    def continuation(self) -> Trigger:
        return AfterAny(*self._of_continuations())


@attrs.frozen(repr=False, init=False)
class AfterAll(_OfMany):
    """The trigger that emits once, when all its triggers are ready.

    Example, with the `plays` of `bl.Collection`:
        >>> both = bl.Repeatedly(bl.AfterAll(bl.AfterCount(2), bl.AfterWatermark()))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=both)
        >>> days.aggregate(n=bl.count()).collect()["n"].to_list()
        [3]
    """

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        for index, done in enumerate(each_finished(self, env, at)):
            env = self.triggers[index].on_elements(env, f"{at}.{index}", mask & ~done, count, context)
        return env

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return reduce(and_, _ready_or_finished(self, env, at, context)) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        for index, child in enumerate(self.triggers):
            env = child.on_fire(env, f"{at}.{index}", mask, context)
        return self.mark(env, at, mask, True)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        env = Trigger.on_merge(self, env, at, mask, context)
        return finish(env, at, mask, reduce(and_, each_finished(self, env, at)))

    def may_finish(self) -> bool:
        # It finishes when it fires. It never fires if one of its children is Never.
        return not any(isinstance(child, Never) for child in self.triggers)

    def continuation(self) -> Trigger:
        return AfterAll(*self._of_continuations())


@attrs.frozen(repr=False, init=False)
class AfterEach(_OfMany):
    """The trigger that emits as its first trigger does until that has finished, then as the second, and so on.

    Example, with the `plays` of `bl.Collection`:
        >>> in_turn = bl.AfterEach(bl.AfterCount(2), bl.Repeatedly(bl.AfterCount(1)))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=in_turn, on_time="if_non_empty")
        >>> days.aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        for index, current in enumerate(self._current(env, at)):
            # When windows merge, an earlier child may be unfinished again. So all children count all elements.
            takes = mask if context.merging else mask & current
            env = self.triggers[index].on_elements(env, f"{at}.{index}", takes, count, context)
        return env

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        both = zip(self._current(env, at), each_ready(self, env, at, context), strict=True)
        return reduce(or_, [current & ready for current, ready in both])

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        for index, current in enumerate(self._current(env, at)):
            child, place = self.triggers[index], f"{at}.{index}"
            env = child.on_fire(env, place, mask & current, context)
            if context.merging:
                env = child.clear(env, place, mask)
        return finish(env, at, mask, reduce(and_, each_finished(self, env, at)))

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        after: dict[str, pl.Expr] = {}
        prior = EVERYWHERE
        for index, child in enumerate(self.triggers):
            place = f"{at}.{index}"
            merged = child.on_merge(env, place, EVERYWHERE, context)
            after |= either(child.cells(place), prior, merged, child.reset(env, place, EVERYWHERE))
            prior = prior & child.finished(merged, place)
        return all_where(mask, {**after, f"{at}.done": prior}, env)

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        due = NO_DEADLINE
        for index, current in enumerate(self._current(env, at)):
            child, place = self.triggers[index], f"{at}.{index}"
            due = where(current, child.deadline(env, place, context, clock), due)
        return due

    def may_finish(self) -> bool:
        return all(child.may_finish() for child in self.triggers)

    def continuation(self) -> Trigger:
        return Repeatedly(AfterAny(*self._of_continuations()))

    def _current(self, env: Env, at: str) -> list[pl.Expr]:
        """Returns expressions, one for each child, that are true if it is the first child that has not finished."""
        current, prior = [], EVERYWHERE
        for done in each_finished(self, env, at):
            current.append(prior & ~done)
            prior = prior & done
        return current


def _ready_or_finished(trigger: Trigger, env: Env, at: str, context: TriggerContext) -> list[pl.Expr]:
    both = zip(each_ready(trigger, env, at, context), each_finished(trigger, env, at), strict=True)
    return [ready | finished for ready, finished in both]
