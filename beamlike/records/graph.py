"""What stands at the beginning of a run's records: its graph in words, enough to draw it without the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from stages.facts import SPARSE


@attrs.frozen
class SourceDescription:
    """A source: what it reads, its watermark strategy in words, and how it deals with splits and silence.

    `idle_after` is in microseconds, None where silence counts; `per_split` names the column. `kind` is the name of its
    class; records of before that was told have none.
    """

    reads: str
    watermark: str
    per_split: str | None = attrs.field(default=None, kw_only=True)
    idle_after: int | None = attrs.field(default=None, kw_only=True)
    percentiles: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    kind: str = attrs.field(default="", kw_only=True)


@attrs.frozen
class Spacing:
    """Windows that all have one length, and of which one starts every period; in microseconds."""

    length: int
    period: int
    offset: int


@attrs.frozen(kw_only=True)
class StageDescription:
    """A stage: what it reads from, its keys and aggregates, and each choice of its windowing in words.

    `choices` has windows, trigger, accumulation, timestamp, allowed lateness, on_time and closing; of a stage without
    windows it says in "operator" what that does. `spacing` says where fixed and sliding windows lie, `calendar` has the
    unit, count, start and timezone of calendar windows; both are None for others. `allowed_lateness` is in
    microseconds. `clocks` are those that its rows of state wait for; `row` is what such a row is called, and `waits`
    what one does that holds the output watermark. `global_window`: all of time is one window. Whether its trigger fires
    at the ends of windows, and before, is not told in older records: then nothing is said of it. `timers` are those of
    a process by name, each "event" or "processing". `sides`: of a stage that has some, what each is fed from, and
    `main` what it reads beside them. `tables`: the sources that rows are looked up in on their way to it.
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

    @property
    def what(self) -> str:
        """The first fact of a stage without windows, which says what it does."""
        return next(iter(self.choices.values()))

    @property
    def windowed(self) -> bool:
        """Whether it groups by windows."""
        return "windows" in self.choices


@attrs.frozen
class SinkDescription:
    """A sink: what it is fed from, where it writes, and the name of its class, where that is told.

    `tables`: the sources that rows are looked up in on their way to it.
    """

    inputs: tuple[str, ...]
    writes: str
    kind: str = ""
    tables: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)


@attrs.frozen
class RunDescription:
    """The graph of a run: sources, stages in an order in which each comes after what it reads from, and sinks."""

    pipeline: str
    sources: Mapping[str, SourceDescription] = attrs.field(factory=dict)
    stages: Mapping[str, StageDescription] = attrs.field(factory=dict)
    sinks: Mapping[str, SinkDescription] = attrs.field(factory=dict)
