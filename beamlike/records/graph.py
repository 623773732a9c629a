"""The graph of a run as text and numbers. It begins the records, so that it can be drawn without the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from stages.facts import SPARSE


@attrs.frozen
class SourceDescription:
    """A source: what it reads, its watermark strategy as text, its splits, and its idleness.

    `idle_after` is in microseconds; None if a silent source is never idle. `per_split` names the column of the split.
    `percentiles` are the percentages of its percentile watermarks. `kind` is the name of the source's class, empty in
    older records. `bound` is that of the strategy in microseconds, if it has one that does not change.
    """

    reads: str
    watermark: str
    per_split: str | None = attrs.field(default=None, kw_only=True)
    idle_after: int | None = attrs.field(default=None, kw_only=True)
    percentiles: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    kind: str = attrs.field(default="", kw_only=True)
    bound: int | None = attrs.field(default=None, metadata=SPARSE, kw_only=True)


@attrs.frozen
class Spacing:
    """The layout of windows of equal length, one of which starts every `period`; all in microseconds."""

    length: int
    period: int
    offset: int

    def ends(self, low: int, high: int) -> range:
        """Returns the ends of windows from `low` to `high` (us), both included."""
        first = self.offset + self.length
        return range(low + (first - low) % self.period, high + 1, self.period)


@attrs.frozen
class PromiseDescription:
    """A promise: the least share of rows, the time (us) after the end of a window, and True if panes wait for it."""

    complete: float
    within: int
    hold: bool = False


@attrs.frozen(kw_only=True)
class StageDescription:
    r"""A stage: its inputs, keys and aggregates, and each choice of its windowing as text.

    `choices`: windows, trigger, accumulation, timestamp, allowed lateness, on_time and closing; for a stage without
    windows, "operator" says what it does.
    `spacing`: the layout of fixed and sliding windows, else None.
    `calendar`: the unit, count, start and timezone of calendar windows, else None.
    `allowed_lateness`: in microseconds.
    `clocks`: the clocks for which rows of its state wait.
    `row`: the word for a row of its state, such as "window".
    `waits`: the text that says why a row of its state holds the output watermark.
    `global_window`: its only window is all of time.
    `fires_at_end`, `fires_before_end`: True if its trigger fires at the ends of windows, and before the ends. Older
    records have the defaults, with which nothing is reported.
    `timers`: the timers of a process by name, each "event" or "processing".
    `sides`: the inputs of each side input.
    `main`: the inputs that are no side inputs.
    `tables`: the sources of lookups between the inputs and the stage.
    `session_gap`: the gap of sessions in microseconds, else None.
    `observes`: the sources whose lateness decides the completeness of its windows, if the pipeline asks for it.
    `promise`: the promise about its panes, else None.
    `plain`: the sources and stages of which all elements reach the stage with their event times. Older records have
    none, or only sources of stages with side inputs.
    `emission`: the trigger and the other choices that decide when a window emits, as `records.emission` packs them.
    Older records have none.
    """

    inputs: tuple[str, ...]
    level: int
    keys: tuple[str, ...]
    aggregates: Mapping[str, str]
    choices: Mapping[str, str]
    spacing: Spacing | None = None
    allowed_lateness: int = 0
    clocks: tuple[str, ...]
    calendar: Mapping[str, Any] | None = None
    key_types: tuple[str, ...] = ()
    row: str = "window"
    waits: str = "has elements that wait for a pane"
    global_window: bool = False
    fires_at_end: bool = False
    fires_before_end: bool = True
    timers: Mapping[str, str] = attrs.field(factory=dict, metadata=SPARSE)
    sides: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, metadata=SPARSE)
    main: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)
    tables: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)
    session_gap: int | None = attrs.field(default=None, metadata=SPARSE)
    plain: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)
    observes: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)
    promise: PromiseDescription | None = attrs.field(default=None, metadata=SPARSE)
    emission: Mapping[str, Any] = attrs.field(factory=dict, metadata=SPARSE)

    @property
    def what(self) -> str:
        """The first of the `choices`, which says what a stage without windows does."""
        return next(iter(self.choices.values()))

    @property
    def windowed(self) -> bool:
        """True if the stage groups by windows."""
        return "windows" in self.choices


@attrs.frozen
class SinkDescription:
    """A sink: its inputs, its target, and the name of its class, if it is known.

    `tables`: the sources of lookups between the inputs and the sink.
    `folder`: the folder of its files, or of its Delta table, or the file of its SQLite database, if it has one on this
    machine; else empty. `table`: the name of its table in a database.
    `rows`: the rows that it gets: "main", "late" or "dead_letters".
    """

    inputs: tuple[str, ...]
    writes: str
    kind: str = ""
    tables: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)
    folder: str = attrs.field(default="", metadata=SPARSE)
    rows: str = attrs.field(default="main", metadata=SPARSE)
    table: str = attrs.field(default="", metadata=SPARSE)


@attrs.frozen
class RunDescription:
    """The graph of a run: its sources, its stages in topological order, and its sinks.

    Raises `ValueError` for another order, as in forged records.
    """

    pipeline: str
    sources: Mapping[str, SourceDescription] = attrs.field(factory=dict)
    stages: Mapping[str, StageDescription] = attrs.field(factory=dict)
    sinks: Mapping[str, SinkDescription] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        known = {*self.sources}
        for name, stage in self.stages.items():
            if not known.issuperset(stage.inputs):
                raise ValueError(f"stage {name!r} has an input that does not come before it")
            known.add(name)
