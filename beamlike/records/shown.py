"""Records as short text and, in notebooks, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, Protocol, cast

from beamlike.system.html import page, table
from stages.state.index import HoldOwner
from windowing.time import MAX_TIME, day_and_clock, format_time

_SECOND: Final = 1_000_000
_HEADS: Final = (
    "source or stage",
    "elements",
    "panes",
    "dropped",
    "dead letters",
    "input",
    "output",
    "held by",
)


class Source(Protocol):
    """The facts of a source that are shown."""

    @property
    def watermark(self) -> int: ...

    @property
    def elements(self) -> int: ...

    @property
    def dead_letters(self) -> int: ...

    @property
    def idle(self) -> bool: ...


class Stage(Protocol):
    """The facts of a stage that are shown."""

    @property
    def input(self) -> int: ...

    @property
    def output(self) -> int: ...

    @property
    def holder(self) -> str: ...

    @property
    def window(self) -> HoldOwner | None: ...

    @property
    def elements(self) -> int: ...

    @property
    def panes(self) -> Mapping[str, int]: ...

    @property
    def dropped(self) -> Mapping[str, int]: ...


class Batch(Protocol):
    """The facts of a batch that are shown."""

    @property
    def batch(self) -> int: ...

    @property
    def sources(self) -> Mapping[str, Source]: ...

    @property
    def stages(self) -> Mapping[str, Stage]: ...

    @property
    def sinks(self) -> Mapping[str, int]: ...

    @property
    def dead_letters(self) -> Mapping[str, int]: ...


class ShownSource:
    """A mixin that shows the record of a source as a line of text."""

    __slots__ = ()

    def __repr__(self) -> str:
        one = cast(Source, self)
        counts = counted({"elements": one.elements, "dead letters": one.dead_letters})
        return (
            f"<SourceRecord: {counts}; watermark {format_time(one.watermark)}{', idle' if one.idle else ''}>"
        )


class ShownStage:
    """A mixin that shows the record of a stage as a line of text."""

    __slots__ = ()

    def __repr__(self) -> str:
        one = cast(Stage, self)
        counts = counted({"elements": one.elements, **_emitted(one), "dropped": sum(one.dropped.values())})
        marks = f"input {format_time(one.input)}, output {format_time(one.output)}"
        return f"<StageRecord: {counts}; {marks}, held by {_held_by(one)}>"


class ShownBatch:
    """A mixin that shows the record of a batch as a line of text and, in a notebook, as tables."""

    __slots__ = ()

    def __repr__(self) -> str:
        one = cast(Batch, self)
        return f"<BatchRecord {one.batch}: {batch_counts(one)}; complete to {format_time(complete_to(one))}>"

    def _repr_html_(self) -> str:
        one = cast(Batch, self)
        return page(f"Batch {one.batch}: {batch_counts(one)}", batch_tables(one))


def batch_counts(batch: Batch) -> str:
    """Returns the counts of a batch as text, such as `1,200 elements, 3 panes, 3 rows written`."""
    letters = [*(source.dead_letters for source in batch.sources.values()), *batch.dead_letters.values()]
    emitted = sum((Counter(_emitted(stage)) for stage in batch.stages.values()), Counter[str]())
    return counted(
        {
            "elements": sum(source.elements for source in batch.sources.values()),
            **emitted,
            "dropped": sum(sum(stage.dropped.values()) for stage in batch.stages.values()),
            "dead letters": sum(letters),
            "rows written": sum(batch.sinks.values()),
        }
    )


def complete_to(batch: Batch) -> int:
    """Returns the event time (us), in whole seconds, up to which everything is complete."""
    sources = [source.watermark for source in batch.sources.values()]
    behind = min([*sources, *(stage.output for stage in batch.stages.values())], default=MAX_TIME)
    return behind // _SECOND * _SECOND if behind < MAX_TIME else behind


def counted(counts: Mapping[str, int]) -> str:
    """Returns counts as text. The first one is always there, others only if they are not zero."""
    first, *_ = counts
    shown = [(name, count) for name, count in counts.items() if count or name == first]
    return ", ".join(f"{count:,} {_singular(name) if count == 1 else name}" for name, count in shown)


def _singular(name: str) -> str:
    """Returns the name of one thing: `element`, `row written`."""
    head, blank, rest = name.partition(" ")
    return f"{head.removesuffix('s')}{blank}{rest.removesuffix('s')}"


def batch_tables(batch: Batch) -> str:
    """Returns tables of the watermarks and counts of a batch, and of the rows that sinks received, as HTML.

    If all times are of one day, they are shown without it.
    """
    day = _common_day(batch)
    tables = [table(_HEADS, _rows(batch, day))]
    if batch.sinks:
        tables.append(table(("sink", "rows"), ((name, f"{count:,}") for name, count in batch.sinks.items())))
    return "".join(tables)


def _rows(batch: Batch, day: str | None) -> Iterator[tuple[str, ...]]:
    for name, source in batch.sources.items():
        idle = "idle" if source.idle else ""
        letters = _count(source.dead_letters)
        yield name, f"{source.elements:,}", "", "", letters, "", _time(source.watermark, day), idle
    for name, stage in batch.stages.items():
        counts = f"{stage.elements:,}", _counts(stage.panes), _counts(stage.dropped)
        letters = _count(batch.dead_letters.get(name, 0))
        marks = _time(stage.input, day), _time(stage.output, day)
        yield name, *counts, letters, *marks, _held_by(stage, day)
    for name, count in batch.dead_letters.items():
        if name not in batch.stages:
            yield name, "", "", "", f"{count:,}", "", "", ""


def _common_day(batch: Batch) -> str | None:
    """Returns the date of all watermarks; None if they are of several days."""
    times = [source.watermark for source in batch.sources.values()]
    times += [time for stage in batch.stages.values() for time in (stage.input, stage.output)]
    days = {parts[0] for parts in map(day_and_clock, times) if parts is not None}
    return days.pop() if len(days) == 1 else None


def _time(us: int, day: str | None) -> str:
    """Formats an event time to the second. Its date is left out if it is `day`."""
    parts = day_and_clock(us)
    if parts is None:
        return format_time(us)
    return parts[1] if parts[0] == day else " ".join(parts)


def _held_by(stage: Stage, day: str | None = None) -> str:
    return stage.holder if stage.window is None else stage.window.text(partial(_time, day=day))


def _emitted(stage: Stage) -> dict[str, int]:
    """Returns the numbers of emitted panes, of panes that these retract, and of rows that are not panes."""
    apart = {"rows": "rows emitted", "retracted": "panes retracted"}
    panes = sum(count for name, count in stage.panes.items() if name not in apart)
    return {"panes": panes, **{text: stage.panes.get(name, 0) for name, text in apart.items()}}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def _count(count: int) -> str:
    return f"{count:,}" if count else ""
