"""Follows a watermark upstream to what holds it: a source, a window, or a row of state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import attrs

from beamlike.observe.words import holder_text, holding_text, length, moment, rows
from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, Upstream, furthest_behind
from beamlike.records.present import Present
from stages.pending_rows import WAITING
from stages.state.index import HoldOwner
from windowing.clocks import clock_percentile
from windowing.lateness import collection
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

_TO_THE_END = "END_OF_WINDOW would let it advance to the end of the window"
_HOLDS = {
    "earliest": f"a pane has the time of its earliest element (EARLIEST); {_TO_THE_END}",
    "latest": f"a pane has the time of its latest element (LATEST); {_TO_THE_END}",
    "end_of_window": "a pane has the time of the end of its window (END_OF_WINDOW)",
}


@attrs.frozen
class Link:
    """A sentence about one link in the chain from a stage to what holds its watermark.

    `waits` says what waits: a row of state, a stage for another stage, or a stage for a source.
    """

    text: str
    waits: Literal["row", "stage", "source"] | None = None

    def __str__(self) -> str:
        return self.text


@attrs.define
class BlockingChain:
    """The chain from a stage upstream to what holds its watermark, after the last batch of a run.

    `reported` has the stages and sources that were already described.
    """

    plan: RunDescription
    present: Present
    batch: BatchRecord
    reported: set[str] = attrs.field(factory=set)

    def stage(self, name: str) -> StageRecord:
        """Returns the record of a stage. A stage without any input so far is at the beginning of time."""
        return self.batch.stages.get(name) or StageRecord(MIN_TIME, MIN_TIME, "no input has arrived yet")

    def source(self, name: str) -> SourceRecord:
        """Returns the record of a source after the last batch."""
        return self.batch.sources.get(name) or SourceRecord(MIN_TIME)

    def output(self, name: str) -> int:
        """Returns the output watermark (us) of a stage."""
        return self.stage(name).output

    def upstream(self, name: str) -> Mapping[str, Upstream]:
        """Returns the inputs of a stage, except its sides, with the watermarks that it knows of them."""
        known, stage = self.stage(name).upstream, self.plan.stages[name]
        return {one: known.get(one) or self._now(one) for one in stage.main or stage.inputs}

    def _now(self, name: str) -> Upstream:
        if name in self.plan.sources:
            return Upstream(self.source(name).watermark, self.source(name).idle)
        return Upstream(self.output(name))

    def output_waits(self, name: str) -> Iterator[Link]:
        """Yields sentences about what the output watermark of a stage waits for."""
        self.reported.add(name)
        record = self.stage(name)
        # If nothing in state holds it, the output watermark is the input watermark.
        if record.window is None:
            yield from self.input_waits(name)
            return
        yield Link(self._held(name, record.window))
        if self.plan.stages[name].windowed:
            yield from self.window_waits(name, record.window.start, record.window.end)
        else:
            yield from self._row_waits(name, record.window)

    def _held(self, name: str, window: HoldOwner) -> str:
        stage = self.plan.stages[name]
        held = f"stage `{name}` holds its output watermark at {moment(window.hold)}: "
        if window.timer is not None:
            return f"{held}{holder_text(window)}, has this output timestamp"
        if window.said:
            return f"{held}{holder_text(window)}"
        if window.table:
            waits = "waits for its turn in the order of time" if window.table == WAITING else stage.waits
            return f"{held}{holder_text(window)} {waits}"
        if not stage.windowed:
            return f"{held}the {stage.row} of {holder_text(window)} {stage.waits}"
        return f"{held}{holder_text(window)} {holding_text(window)}, and {self.pane_time(name)}"

    def _row_waits(self, name: str, row: HoldOwner) -> Iterator[Link]:
        """Yields a sentence about what a row of state waits for: that its time ends, or another event."""
        stage = self.plan.stages[name]
        if row.said and row.due is not None:
            yield Link(f"it waits for processing time to reach {moment(row.due)}", "row")
            return
        if stage.sides and row.timer is None and row.table != WAITING:
            yield from self._side_waits(name, row.end)
            return
        if row.timer is not None and stage.timers.get(row.timer) == "processing":
            yield Link(f"that timer waits for processing time to reach {moment(row.end)}", "row")
            return
        if row.timer is not None or row.table:
            what = "row" if row.timer is None else "timer"
            # A row with this time is processed when the watermark is after it.
            until = row.end + 1 if row.table == WAITING else row.end
            yield Link(f"that {what} waits for {self._to_go(name, until)}", "row")
            yield from self.input_waits(name)
            return
        other = "" if row.due is None else f", or for processing time to reach {moment(row.due)}"
        yield Link(f"that {stage.row} waits for {self._to_go(name, row.end)}{other}", "row")
        yield from self.input_waits(name)

    def _side_waits(self, name: str, end: int) -> Iterator[Link]:
        """Yields a sentence about the first side that is not ready for a row whose window ends at `end`."""
        for side, feeds in self.plan.stages[name].sides.items():
            heard = self.stage(name).sides.get(f"side.{side}", Upstream(MIN_TIME))
            if heard.watermark < end:
                where = f"which is at {moment(heard.watermark)}"
                yield Link(
                    f"that row waits for a pane of its window of side '{side}', or for the watermark of that side to "
                    f"reach {moment(end)}, {where}",
                    "row",
                )
                yield from self._upstream_waits(name, {one: self._now(one) for one in feeds})

    def pane_time(self, name: str) -> str:
        """Describes the timestamp at which pending elements hold the output watermark, and the option that would change
        it.
        """
        timestamp = self.plan.stages[name].choices["timestamp"]
        return _HOLDS.get(timestamp, f"a pane has the time of {timestamp}")

    def window_waits(self, name: str, start: int, end: int) -> Iterator[Link]:
        """Yields a sentence about what a window with pending elements waits for."""
        stage, record = self.plan.stages[name], self.stage(name)
        if end >= GLOBAL_WINDOW_END:
            text = f"the global window of stage `{name}` waits for the end of input, {self._or_trigger(name)}"
        elif record.input < end and self.fires_at_end(name):
            text = f"that window waits for {self._to_go(name, end)}{self._or_percentiles(name)}"
        else:
            # After its end, a window may emit more panes, until the allowed lateness is over.
            until = collection(end, stage.allowed_lateness)
            over = record.input >= end
            waits = "that window is over, and later elements wait" if over else "that window waits"
            text = f"{waits} for its trigger {stage.choices['trigger']}, or for {self._to_go(name, until)}"
        yield Link(text, "row")
        yield from self.input_waits(name)

    def fires_at_end(self, name: str) -> bool:
        """True if the stage's trigger waits for the end of each window."""
        return self.plan.stages[name].fires_at_end

    def _or_trigger(self, name: str) -> str:
        """Describes the event, other than the end of input, at which the global window fires; or a trigger that fires
        earlier.
        """
        stage = self.plan.stages[name]
        if stage.fires_at_end and not stage.fires_before_end:
            return "at which alone its trigger fires; Repeatedly(AfterCount(...)) would give panes before"
        return f"or for its trigger {stage.choices['trigger']}"

    def _or_percentiles(self, name: str) -> str:
        """Describes the percentile watermarks for which the trigger waits."""
        clocks = self.plan.stages[name].clocks
        shares = [share for clock in clocks if (share := clock_percentile(clock)) is not None]
        known = {share: self._input_percentile(name, share) for share in shares}
        return "".join(f"; its {share}% watermark is at {moment(time)}" for share, time in known.items())

    def _input_percentile(self, name: str, share: int) -> int:
        upstream = self.upstream(name)
        active = [one for one, heard in upstream.items() if not heard.idle] or list(upstream)
        records: dict[str, SourceRecord | StageRecord] = {**self.batch.sources, **self.batch.stages}
        return min(
            records[one].percentiles.get(share, MIN_TIME) if one in records else MIN_TIME for one in active
        )

    def _to_go(self, name: str, time: int) -> str:
        at = self.stage(name).input
        where = "which is still at the beginning of time"
        if at > MIN_TIME:
            where = f"which is at {moment(at)}, {length(time - at)} to go"
        return f"the input watermark of stage `{name}` to reach {moment(time)}, {where}"

    def input_waits(self, name: str) -> Iterator[Link]:
        """Yields sentences about what the input watermark of a stage waits for."""
        yield from self._promise_waits(name)
        yield from self._upstream_waits(name, self.upstream(name))

    def _promise_waits(self, name: str) -> Iterator[Link]:
        """Yields a sentence about the promise for which a stage waits, although its inputs are further ahead."""
        promise, upstream = self.plan.stages[name].promise, self.upstream(name)
        if promise is None or not promise.hold:
            return
        ahead = upstream[furthest_behind(upstream)].watermark
        if self.stage(name).input < ahead:
            yield Link(
                f"stage `{name}` holds its input watermark back until {promise.complete:g} of the rows have arrived, "
                f"as promised, for at most {length(promise.within)} after the end of a window; its inputs are at "
                f"{moment(ahead)}",
                "stage",
            )

    def _upstream_waits(self, name: str, upstream: Mapping[str, Upstream]) -> Iterator[Link]:
        """Yields sentences about what the least of these watermarks waits for."""
        idle = sorted(one for one, heard in upstream.items() if heard.idle)
        if idle and len(idle) < len(upstream):
            yield Link(f"stage `{name}` ignores {_named(idle)}, idle now")
        over = sorted(one for one in upstream if one in self.plan.sources and self.source(one).over)
        if over and len(over) < len(upstream):
            yield Link(f"stage `{name}` no longer waits for {_named(over)}, whose input has ended")
        behind = furthest_behind(upstream)
        if behind in self.plan.sources:
            yield from self._source_waits(name, behind)
            return
        at = moment(upstream[behind].watermark)
        yield Link(f"stage `{name}` waits for stage `{behind}`, whose output watermark is at {at}", "stage")
        # Several ways may lead to the same stage, which is described only once.
        if behind not in self.reported:
            yield from self.output_waits(behind)

    def _source_waits(self, name: str, behind: str) -> Iterator[Link]:
        """Yields sentences about what a source waits for, and how the stage could stop waiting for it."""
        record = self.source(behind)
        self.reported.add(behind)
        if record.over:
            yield Link(f"stage `{name}` has heard the end of source `{behind}`: nothing holds it any more")
            return
        split = "" if record.split is None else f", split {record.split}"
        silence = self._silence(behind, record)
        yield Link(f"stage `{name}` waits for source `{behind}`{split}, {silence}", "source")
        yield Link(f"source `{behind}` {self._source_watermark(behind, record)}")

    def _silence(self, name: str, record: SourceRecord) -> str:
        """Describes how long a source has been silent, and how the stage could stop waiting for it."""
        silent = 0 if record.since is None else self.present.time - record.since
        awaited = f"which has no watermark until {record.awaited} has had rows" if record.awaited else ""
        if silent <= 0:
            return awaited or "which had elements in this batch" * (record.elements > 0) or "which advances"
        silence = f"silent for {length(silent)}"
        remedy = self._remedy(name, record, silent)
        return "; ".join(part for part in (awaited, silence, remedy) if part)

    def _source_watermark(self, name: str, record: SourceRecord) -> str:
        strategy = self.plan.sources[name].watermark
        if record.watermark > MIN_TIME:
            return f"has its watermark at {moment(record.watermark)}, by {strategy}"
        if record.elements == 0 and record.dead_letters > 0:
            return f"has no watermark yet: {rows(record.dead_letters, 'row')} had no readable event time"
        return f"has no watermark yet: {strategy} has had no element that gives one"

    def _remedy(self, name: str, record: SourceRecord, silent: int) -> str:
        if record.idle:
            return "all that the stage reads is idle, so its watermark stays until one of them has new rows"
        idle_after = self.plan.sources[name].idle_after
        if idle_after is not None:
            return f"idle_after={length(idle_after)} lets it pass in {length(max(0, idle_after - silent))}"
        if record.split is None and len(self.plan.sources) == 1:
            return (
                "it is the only source, so windows stay open until it has new rows, or until the end of input"
            )
        return "set idle_after to let it pass"


def _named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
