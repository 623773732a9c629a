"""The summary at the end of a run: its batches, the rows that it could not use or dropped, and where these are."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

from beamlike.expressions.describe import describe
from beamlike.io.memory import memory_of
from beamlike.plan.model import Plan
from beamlike.plan.run_graph import folder_of
from beamlike.records.model import BatchRecord
from beamlike.records.unread import unread_input
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.display.tables import TOTALS, total_rows
from beamlike.runtime.run.dead_letter_limit import rows_text
from beamlike.runtime.run.drops import dropped_rows
from beamlike.system.html import bullets, page, table
from beamlike.system.secrets import without_secrets

_LOG = logging.getLogger("beamlike")


class Run(Protocol):
    """A run on either runner.

    `dead_letters` is the folder for dead letters that no collection receives. `changed_files` has, by source, the files
    that changed after the last batch. `last` is the record of the last batch, which may belong to an earlier run on the
    checkpoint.
    """

    plan: Plan

    @property
    def last(self) -> BatchRecord | None: ...

    @property
    def batches(self) -> Sequence[BatchRecord]: ...

    @property
    def dead_letters(self) -> str: ...

    @property
    def changed_files(self) -> Mapping[str, Mapping[str, str]]: ...


class Shown:
    """A mixin that shows a run as a line of text and, in a notebook, as tables.

    If the run has one sink in memory, its rows can be read as an Arrow stream.
    """

    __slots__ = ()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        plan = cast(Run, self).plan
        sinks = {name: sink.sink for name, sink in plan.sinks.items()}
        return memory_of(sinks, f"the run of {plan.name!r}").__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return run_text(cast(Run, self))

    def _repr_html_(self) -> str:
        return _run_html(cast(Run, self))


def run_text(run: Run) -> str:
    """Returns a line such as `<LocalRun of 'scores': 3 batches; 2 rows that parse could not use: see bad>`."""
    count = len(run.batches)
    batches = "1 batch" if count == 1 else f"{count:,} batches"
    return f"<{type(run).__name__} of {run.plan.name!r}: {'; '.join([batches, *lost_rows(run), *left_open(run)])}>"


def _run_html(run: Run) -> str:
    """Returns the counts of the run, the rows of its sinks, and the rows that it could not use or dropped, as HTML."""
    sinks = [(run.dead_letters if name == UNCLAIMED else name, rows) for name, rows, _ in sink_rows(run)]
    count = len(run.batches)
    return page(
        f"{type(run).__name__} of {run.plan.name!r}: {count:,} batch{'es' if count != 1 else ''}",
        table(TOTALS, total_rows(run.batches)),
        table(("sink", "rows"), sinks),
        *bullets([*lost_rows(run), *left_open(run)]),
    )


def sink_rows(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yields the name of each sink, the number of rows that the run wrote to it, and its place, as text."""
    written = sum((Counter(record.sinks) for record in run.batches), Counter[str]())
    for name, count in sorted({**dict.fromkeys(run.plan.sinks, 0), **written}.items()):
        sink = run.plan.sinks[name].sink if name in run.plan.sinks else None
        place = run.dead_letters if sink is None else folder_of(sink) or describe(sink)
        yield name, f"{count:,}", without_secrets(place)


def lost_rows(run: Run) -> Iterator[str]:
    """Yields lines about rows that were not used: dead letters by source and step, dropped elements by stage, unread
    files.
    """
    lost = sum((record.set_aside for record in run.batches), Counter[str]())
    takers = _takers(run.plan)
    for name, count in sorted(lost.items()):
        where = ", ".join(sorted(takers.get(name, ()))) or run.dead_letters
        yield f"{rows_text(count)} that {name} could not use: see {where}"
    yield from dropped_rows(run.plan, run.batches)
    yield from unread_input(run.batches, run.changed_files)


def left_open(run: Run) -> Iterator[str]:
    """Yields, for each stage with open windows, the numbers of waiting elements and of pending timers, as text."""
    record = run.last
    for name, stage in record.stages.items() if record else ():
        counts = [(stage.pending or 0, "element", "waits", "wait"), (stage.timers, "timer", "is", "are")]
        texts = [
            f"{count:,} {what} {one}" if count == 1 else f"{count:,} {what}s {several}"
            for count, what, one, several in counts
            if count
        ]
        if texts:
            yield f"{' and '.join(texts)} {'pending ' if stage.timers else ''}in {name}, whose windows are open"


def log_open(run: Run, *, goes_on: bool) -> None:
    """Logs elements and timers that are pending at the end of a run. `goes_on`: a later run can continue with them."""
    for text in left_open(run):
        if goes_on:
            _LOG.info(
                "%s: %s; the next run continues with them, and drain=True closes them", run.plan.name, text
            )
        else:
            _LOG.warning("%s: %s; without a checkpoint they are lost", run.plan.name, text)


def _takers(plan: Plan) -> dict[str, set[str]]:
    """Returns the consumers of dead letters, by source or step."""
    takers: dict[str, set[str]] = {}
    for producer in plan.producers.values():
        for route in producer.routes:
            if route.carries_dead_letters:
                whose = route.before[-1].name if route.before else producer.name
                takers.setdefault(whose, set()).add(route.consumer)
    return takers
