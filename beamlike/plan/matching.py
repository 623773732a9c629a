"""Finds the names that a run has for the parts of a plan: its sources, stages and lookup tables.

A derived name depends on the order in which steps are declared. So a part without a given name is recognized by its
declaration and by the routes to it. It then gets the name that it has in the run, under which its state is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from beamlike.errors import PlanError, listed
from beamlike.plan.differences import PARTS, Difference, Remedy, differences, in_order, ways_changed
from beamlike.plan.manifest import Runner, describe, stem
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.renaming import with_names
from beamlike.plan.ways import renamed
from windowing.identity import as_text

_KINDS: Final = ("sources", "tables", "stages")
"""The kinds of parts in the order of matching. Routes to one kind begin at an earlier kind."""

_OF_SOURCE: Final = ("stem", "kind", "event time", "ways")
_OF_TABLE: Final = ("columns", "ways")
_OF_STAGE: Final = ("kind", "keys", "choices", "does", "ways")
"""The facts by which a part without a given name is recognized."""


@attrs.frozen
class Fit:
    """A plan with the names that the run uses, its manifest, and its differences from the run."""

    plan: Plan
    described: dict[str, Any]
    differences: tuple[Difference, ...] = ()


def fitted(plan: Plan, saved: Mapping[str, Any] | None, shards: int, runner: Runner = Runner.SPARK) -> Fit:
    """Adapts a plan to the run with this manifest, which it continues. Without a manifest, the plan stays unchanged."""
    described = describe(plan, shards, runner)
    if saved is None:
        return Fit(plan, described)
    match = _Match.of(saved, described, plan.sinks)
    plan = with_names(plan, match.all_names())
    described = describe(plan, shards, runner)
    told = [*differences(match.without_hinted(saved), described), *match.told()]
    return Fit(plan, described, tuple(in_order(told)))


@attrs.define
class _Match:
    """The names in the run for names in the plan: `names` for equal parts, `changed` for changed parts."""

    saved: Mapping[str, Any]
    now: Mapping[str, Any]
    reserved: frozenset[str]
    names: dict[str, str] = attrs.field(factory=dict)
    changed: dict[str, str] = attrs.field(factory=dict)
    unsure: set[str] = attrs.field(factory=set)

    @classmethod
    def of(cls, saved: Mapping[str, Any], now: Mapping[str, Any], reserved: Iterable[str]) -> _Match:
        """Matches two manifests. `reserved` has names that are used already, of parts without state."""
        match = cls(saved, now, frozenset(reserved))
        given = {name for kind in _KINDS for name, facts in now[kind].items() if facts["named"]}
        match.names = {name: name for name in given}
        match._find("sources", now["sources"], _OF_SOURCE)
        match._pair("sources")
        match._find("tables", now["tables"], _OF_TABLE)
        levels = sorted({facts["level"] for facts in now["stages"].values()})
        for level in levels:
            stages = {name: facts for name, facts in now["stages"].items() if facts["level"] == level}
            # First with the name of an earlier step, which distinguishes stages that are otherwise equal.
            match._find("stages", stages, ("stem", *_OF_STAGE, *PARTS))
            match._find("stages", stages, (*_OF_STAGE, *PARTS))
            match._find("stages", stages, _OF_STAGE, _only_added)
        match._pair("stages")
        return match

    def _free(self, kind: str) -> dict[str, Any]:
        """Returns the parts of the run that have a derived name and are not matched yet."""
        taken = {*self.names.values(), *self.changed.values(), *self.reserved}
        return {
            name: facts
            for name, facts in self.saved.get(kind, {}).items()
            if not facts["named"] and name not in taken
        }

    def _find(
        self,
        kind: str,
        wanted: Mapping[str, Any],
        facts: Iterable[str],
        fits: Callable[[Any, Any], bool] = lambda before, after: True,
    ) -> None:
        """Matches parts of the plan and the run that have equal `facts`. A part that equals several is not matched."""
        facts = tuple(facts)
        before = [(name, each, _key(each, facts)) for name, each in self._free(kind).items()]
        alike: dict[str, list[str]] = {}
        for name, each in wanted.items():
            key = _key(self._translated(each), facts)
            found = [old for old, its, known in before if known == key and fits(its, each)]
            for old in found if name not in self.names else ():
                alike.setdefault(old, []).append(name if len(found) == 1 else "")
        for old, names in alike.items():
            if len(names) == 1 and names[0]:
                self.names[names[0]] = old
            else:
                self.unsure.add(old)

    def _translated(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a part's facts with the names that its producers have in the run. A producer that is new in the
        plan gets a name that equals none.
        """
        known = {**self.names, **self.changed}
        return {**facts, "ways": renamed(facts["ways"], lambda name: known.get(name, f"@new {name}"))}

    def _pair(self, kind: str) -> None:
        """Pairs each unmatched part of the plan with the most similar part of the run, as changed."""
        for name, facts in self.now[kind].items():  # in the order of the plan
            if name in self.names or not (free := self._free(kind)):
                continue
            own = self._translated(facts)
            likeness = {old: _likeness(before, own, old == name) for old, before in free.items()}
            best = max(likeness, key=lambda old: likeness[old])
            if likeness[best] > 0:
                self.changed[name] = best

    def told(self) -> Iterator[Difference]:
        """Yields differences: changed parts with a derived name, and given names that replace a part of the run."""
        for name, old in self.changed.items():
            kind = "stages" if name in self.now["stages"] else "sources"
            before, after = self.saved[kind][old], self._translated(self.now[kind][name])
            if before["ways"] != after["ways"]:
                yield self._told(kind, old, f"has changed: it was of {ways_changed(before, after)}")
            elif before.get("does") != after.get("does"):
                what = f"has changed: {as_text(before['does'])}, now {as_text(after['does'])}"
                yield self._told(kind, old, what)
        for old in sorted(self.unsure & {*self._free("stages"), *self.changed.values()}):
            yield self._told("stages", old, "is like several stages of this plan, and may be any of them")
        for old, new in self._hinted().items():
            yield self._told("stages", old, f"is called {new!r} now")

    def _told(self, kind: str, old: str, what: str) -> Difference:
        step = self.saved[kind][old].get("step", old)
        called = f"{kind.removesuffix('s')} {old!r}, which has no name of yours,"
        return Difference(f"{called} {what} (name={step!r} keeps its state)", Remedy.NAME)

    def _hinted(self) -> dict[str, str]:
        """Returns new names, by old names, of stages that the user has named since the run began."""
        new = {name: facts for name, facts in self.now["stages"].items() if name not in self.saved["stages"]}
        named = {
            name: _key(self._translated(facts), _OF_STAGE) for name, facts in new.items() if facts["named"]
        }
        free = {old: _key(facts, _OF_STAGE) for old, facts in self._free("stages").items()}
        found = {old: [name for name, key in named.items() if key == own] for old, own in free.items()}
        return {old: names[0] for old, names in found.items() if len(names) == 1}

    def without_hinted(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the manifest without the stages for which `told` yields a difference, so that they are not also
        reported as missing.
        """
        hinted = self._hinted()
        return {
            **saved,
            "stages": {name: each for name, each in saved["stages"].items() if name not in hinted},
        }

    def all_names(self) -> dict[str, str]:
        """Returns names for all parts of the plan. A new part gets a name that no part of the run has."""
        names = {**self.names, **self.changed}
        of_run = (name for kind in _KINDS for name in self.saved.get(kind, ()))
        taken = {*names.values(), *of_run, *self.reserved}
        for kind, name in ((each, name) for each in _KINDS for name in self.now[each]):
            if name not in names:
                names[name] = _unused(self.now[kind][name].get("step", name), name, taken)
                taken.add(names[name])
        return names


def _key(facts: Mapping[str, Any], which: Iterable[str]) -> str:
    return as_text([facts.get(fact) for fact in which])


def _only_added(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """True if aggregates and fields of the old stage are unchanged; the new stage may have more."""
    return all(before[part].items() <= after[part].items() for part in PARTS)


def _likeness(before: Mapping[str, Any], after: Mapping[str, Any], same_name: bool) -> int:
    """Returns how similar two parts of one kind are; 0 if they cannot be the same part."""
    if before["kind"] != after["kind"] or before.get("keys") != after.get("keys"):
        return 0
    facts = ("ways", "aggregates", "fields", "choices", "does")
    return 1 + 2 * sum(int(before.get(fact) == after.get(fact)) for fact in facts) + int(same_name)


def _unused(step: str, name: str, taken: Container[str]) -> str:
    """Returns a free name for a part of a step. If the name is taken, a number is added to the step's name."""
    part, base, last = name.removeprefix(step), stem(step), 1
    while name in taken:
        last += 1
        name = f"{base}_{last}{part}"
    return name


def require_told_apart(plan: Plan) -> None:
    """Raises `PlanError`, which suggests names, if two parts that the user has not named are equal.

    A later run could not find out which state belongs to which of them.
    """
    described = describe(plan, 1)
    for kind, facts in (("sources", _OF_SOURCE), ("stages", ("stem", *_OF_STAGE, *PARTS))):
        seen: dict[str, str] = {}
        for name, own in described[kind].items():
            if own["named"]:
                continue
            other = seen.setdefault(_key(own, facts), name)
            if other != name:
                names = " and ".join(
                    f"name={described[kind][each].get('step', each)!r}" for each in (other, name)
                )
                raise PlanError(
                    f"it cannot be told apart from {other!r}: you have named neither, and both compute the same from "
                    f"the same rows, so a later run could not find their states; name them, such as {names}, the names "
                    "of their states in an existing checkpoint",
                    step=name,
                )
    for name, stage in plan.stages.items():
        _require_own_state(plan, stage)
        if len(numbered := stage.stage.operator.numbered) > 1:
            raise PlanError(
                f"its sides {listed(map(repr, numbered))} have no names of yours, and a checkpoint must know which "
                "rows belong to which; give each a name with .named(...)",
                step=name,
            )


def _require_own_state(plan: Plan, stage: StagePlan) -> None:
    """Raises `PlanError` if the keys of two stages' states could collide. A key is the stage's name, a / and a table's
    name.
    """
    tables = (kept.table.name for kept in stage.stage.operator.tables)
    for table in (f"{stage.name}/{table}" for table in tables if table):
        for other in plan.stages:
            if f"{other}/".startswith(f"{table}/"):
                raise PlanError(
                    f"its state would be confused with that of {stage.name!r}; give it another name",
                    step=other,
                )
