"""Differences between a plan and the run that it continues, found by comparing manifests, with a remedy for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from windowing.identity import as_text


class Remedy(StrEnum):
    """Remedies that make a plan fit a run. The strongest is last."""

    NAME = "give the step that name, which keeps its state whatever leads to it now, or another one to begin without"
    TABLE = "give the side another name, as with .named(...), and it is read again, or continue with the former plan"
    RESTORE = "take a savepoint of it and restore that with this plan"
    ANEW = "start again with another checkpoint, or continue with the former plan"
    VERSION = "continue with the version of beamlike that wrote it, or start again with another checkpoint"


@attrs.frozen
class Difference:
    """A difference between a plan and the run that it continues, and the remedy."""

    what: str
    remedy: Remedy

    def __str__(self) -> str:
        return self.what


TICKS: Final = "batches without input"
"""The fact that a run has batches without input, because something waits for processing time."""

NEW_TABLES: Final = "tables that may be new"
"""The fact of a stage that names the state tables which earlier versions lack. They begin empty."""

_OF_RUN: Final = ("runner", "shards", "levels", TICKS)
_OF_SOURCE: Final = {
    "kind": Remedy.ANEW,
    "event time": Remedy.ANEW,
    "watermark": Remedy.ANEW,
    "files listed by": Remedy.RESTORE,
}
_OF_STAGE: Final = {
    "level": Remedy.RESTORE,
    "inputs": Remedy.RESTORE,
    "kind": Remedy.ANEW,
    "keys": Remedy.ANEW,
}
"""Facts of a source or stage that must not change, each with the remedy for a change."""

PARTS: Final = {"aggregates": "aggregate", "fields": "state field or timer"}
"""The kinds of parts that a plan may add to a stage, each with its word in messages."""


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Compares a plan with the run of a checkpoint or savepoint. Returns an empty list if the plan can continue the
    run.

    Both manifests must use equal names for equal parts (see `matching`). Facts that are not compared may change:
    watermark delays, new stages on an existing level, new aggregates, and all that has no state, such as steps and
    sinks.
    """
    found = [_of_run(fact, saved, now, Remedy.RESTORE) for fact in _OF_RUN if saved[fact] != now[fact]]
    found += _of_all("source", saved["sources"], now["sources"], _OF_SOURCE)
    found += _of_all("stage", saved["stages"], now["stages"], _OF_STAGE)
    found += [
        Difference(f"source {name!r} is new", Remedy.RESTORE)
        for name in now["sources"]
        if name not in saved["sources"]
    ]
    found += [
        Difference(f"stage {name!r} is new, on level {stage['level']}", Remedy.RESTORE)
        for name, stage in now["stages"].items()
        if name not in saved["stages"] and stage["level"] > saved["levels"]
    ]
    found += _of_tables(saved, now)
    for name in saved["stages"].keys() & now["stages"].keys():
        found += _of_stage(f"stage {name!r}", saved["stages"][name], now["stages"][name])
    return in_order(found)


def in_order(found: Iterable[Difference]) -> list[Difference]:
    """Removes repeated differences, and sorts them by remedy, then by text."""
    return sorted({*found}, key=lambda difference: (list(Remedy).index(difference.remedy), difference.what))


def _of_run(fact: str, saved: Mapping[str, Any], now: Mapping[str, Any], remedy: Remedy) -> Difference:
    before, after = saved[fact], now[fact]
    if fact == TICKS:
        before, after = ("some, for processing time" if each else "none" for each in (before, after))
    return Difference(f"{fact}: it has {before}, this run {after}", remedy)


def _of_all(
    kind: str, saved: Mapping[str, Any], now: Mapping[str, Any], facts: Mapping[str, Remedy]
) -> Iterator[Difference]:
    yield from (Difference(f"{kind} {name!r} is gone", Remedy.RESTORE) for name in saved if name not in now)
    for name in saved.keys() & now.keys():
        before, after = saved[name], now[name]
        for fact, remedy in facts.items():
            if before.get(fact, after.get(fact)) != after.get(fact, before.get(fact)):
                was, is_now = (_text(each, fact) for each in (before, after))
                yield Difference(f"{kind} {name!r}: {fact} was {was}, now {is_now}", remedy)


def _of_tables(saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Yields changes of lookup tables. A table that was read before the first batch must not change, and cannot be read
    again for a new stage.
    """
    tables = now["tables"]
    for name, before in saved.get("tables", {}).items():
        if name in tables and tables[name]["columns"] != before["columns"]:
            was, is_now = (_text(each, "columns") for each in (before, tables[name]))
            yield Difference(f"side {name!r}: columns was {was}, now {is_now}", Remedy.ANEW)
        elif name in tables and tables[name]["ways"] != before["ways"]:
            told = f"it keeps the rows of {ways_changed(before, tables[name])}"
            yield Difference(f"side {name!r}: {told}", Remedy.TABLE)
        for stage, facts in now["stages"].items() if name not in tables else ():
            if read := sorted({*before["sources"]}.intersection(facts["inputs"])):
                told = f"stage {stage!r}: it keeps side {name!r}, which was a table, and {read[0]!r} is not read again"
                yield Difference(told, Remedy.ANEW)


def _of_stage(where: str, saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Yields changes of a stage's state. Aggregates may be added: in windows that are already open, they start without
    elements.
    """
    before, after = saved["choices"], now["choices"]
    for name in sorted(before.keys() | after.keys()) if saved["kind"] == now["kind"] else ():
        if before.get(name) != after.get(name):
            yield _changed(where, name, "choices", name, saved, now)
    for part, called in PARTS.items():
        for name in saved[part]:
            if saved[part][name] != now[part].get(name):
                yield _changed(where, f"{called} {name}", part, name, saved, now)
    for column, dtype in saved["accumulators"].items():
        # The accumulator of a removed aggregate is not compared, because the aggregate is already reported.
        if now["accumulators"].get(column, dtype) != dtype:
            told = f"{where}: column {column} was {dtype}, now {now['accumulators'][column]}"
            yield Difference(told, Remedy.ANEW)
    for column in saved["state"].keys() | now["state"].keys() - _of_new_tables(saved, now):
        was, is_now = saved["state"].get(column, "missing"), now["state"].get(column, "gone")
        if was != is_now:
            yield Difference(f"{where}: column {column} was {was}, now {is_now}", Remedy.ANEW)


def _of_new_tables(saved: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Returns the columns of the state tables that the saved state lacks and may lack."""
    known = {column.partition("/")[0] for column in saved["state"] if "/" in column}
    new = {*now.get(NEW_TABLES, ())} - known
    return {column for column in now["state"] if "/" in column and column.partition("/")[0] in new}


def _changed(
    where: str, what: str, part: str, name: str, saved: Mapping[str, Any], now: Mapping[str, Any]
) -> Difference:
    """Returns a difference with both values as text, or as data if their texts are equal."""
    before = saved["text"][part].get(name, "not there")
    after = now["text"][part].get(name, "gone")
    if before == after:
        before, after = as_text(saved[part].get(name)), as_text(now[part].get(name))
    return Difference(f"{where}: {what} was {before}, now {after}", Remedy.ANEW)


def _text(facts: Mapping[str, Any], fact: str) -> str:
    return str(facts.get("text", {}).get(fact, shown(facts[fact])))


def ways_changed(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describes the routes to a stage or side that differ, before and now."""
    before, after = saved["text"]["ways"], now["text"]["ways"]
    if before == after:
        before, after = ([as_text(one["ways"])] for one in (saved, now))
    gone = [way for way in before if way not in after]
    new = [way for way in after if way not in before]
    return f"{'; '.join(gone) or 'nothing more'}, now {'; '.join(new) or 'nothing in its place'}"


def shown(fact: Any) -> str:
    """Formats a fact for people."""
    if isinstance(fact, list):
        return ", ".join(map(shown, fact))
    if isinstance(fact, Mapping):
        return ", ".join(f"{name}: {shown(each)}" for name, each in fact.items()) or "none"
    return str(fact)


def refusal(found: Iterable[Difference], what: str, remedies: Mapping[Remedy, str]) -> str:
    """Returns the text of an error: the differences, grouped by remedy. `remedies` may replace the texts of
    remedies.
    """
    lines = [f"this plan does not fit {what}:"]
    by_remedy: dict[Remedy, list[str]] = {}
    for difference in found:
        by_remedy.setdefault(difference.remedy, []).append(difference.what)
    for remedy, told in by_remedy.items():
        lines += [f"  {line}" for line in told]
        lines.append(f"  -> {remedies.get(remedy, remedy)}")
    return "\n".join(lines)
