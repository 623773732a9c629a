"""The values that the pages show, for each template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from beamlike.errors import ViewError
from beamlike.observe.charts.layers import Frame
from beamlike.observe.charts.plot import stage_facts
from beamlike.observe.completeness.calibration import completeness
from beamlike.observe.health import Health
from beamlike.observe.live.catalog import Catalog, Entry, OpenRun
from beamlike.observe.live.charts import RunCharts
from beamlike.observe.live.graph import graph
from beamlike.observe.live.rows import Output, newest, outputs
from beamlike.observe.live.texts import behind, event_clock, mark, rate
from beamlike.observe.status import Status
from beamlike.observe.totals import Total, others, totals
from beamlike.observe.tuning.tuning import tune
from beamlike.observe.waiting.explain import run_state, waits
from beamlike.observe.words import clock, counts, current_texts, failure_texts, holder_text, length, size
from beamlike.records.history import History
from beamlike.records.model import StageRecord
from beamlike.records.present import Present
from beamlike.records.unread import unread_input
from windowing.time import format_time

_MOST_BATCHES: Final = 50
_MOST_LINES: Final = 8

_LONGEST: Final = 500  # characters of an error

_SLOW: Final = 30
"""The seconds for which a result is shown that takes long to compute, though the run goes on meanwhile."""

Values = dict[str, Any]
"""The values of a template, by name."""


@attrs.frozen(eq=False)
class Link:
    """A link to ask about a window: its text, key and window."""

    text: str
    key: str
    window: str


STATES: Final = ("running", "failed", "killed", "stopped", "ended", "unreadable")
"""The states of runs in the order of the list; they are also classes of the style sheet."""


def run_list(catalog: Catalog, text: str = "", state: str = "") -> Values:
    """Returns the values of the list of runs and savepoints: runs by state, the latest first.

    `text` is a part of the name of a run or pipeline, and `state` one of `STATES`; if they are empty, all are listed.
    """
    every = sorted(map(_listed, catalog.entries()), key=lambda one: (STATES.index(one["kind"]), -one["last"]))
    found = [
        one
        for one in every
        if state in ("", one["kind"])
        and text.lower() in f"{one['entry'].name} {one.get('pipeline', '')}".lower()
    ]
    return {
        "title": "Runs",
        "runs": found,
        "all": len(every),
        "states": [one for one in STATES if any(run["kind"] == one for run in every)],
        "text": text,
        "chosen": state,
        "foreign": catalog.foreign(),
        "savepoints": catalog.savepoints(),
        "places": catalog.places,
        "clock": clock,
    }


def _listed(entry: Entry) -> Values:
    found: Values = {"entry": entry}
    try:
        return found | _state(History.end_of(entry.path))
    except (OSError, ViewError) as error:
        return found | {"state": f"cannot be read: {error}", "kind": "unreadable", "last": 0}
    except Exception as error:  # of damaged or forged records, which must not hide the other runs
        return found | {
            "state": f"cannot be shown: {type(error).__name__}: {error}"[:_LONGEST],
            "kind": "unreadable",
            "last": 0,
        }


def _state(history: History) -> Values:
    status = Status.of(history)
    worst = max(status.lags.items(), key=lambda item: item[1], default=None)
    batch = history.latest
    return {
        "pipeline": history.plan.pipeline[:_LONGEST],
        "state": run_state(history).removeprefix("the run "),
        "kind": _kind(history),
        "last": 0 if batch is None else batch.processing_time,
        "why": history.failure.summary if history.failure is not None else "",
        "batch": None if batch is None else batch.batch,
        "ago": "" if status.age is None else length(status.age),
        "ended": ""
        if batch is None or history.closed is None
        else clock(batch.finished or batch.processing_time),
        "worst": "" if worst is None else f"{worst[0]}: {length(worst[1])}",
        "rows": None if batch is None else sum(one.elements for one in batch.sources.values()),
    }


def _kind(history: History) -> str:
    """Returns the state of a run, which is one of `STATES`. A run whose process is unknown counts as running."""
    if history.closed is not None:
        return history.closed if history.closed in STATES else "ended"
    return "killed" if history.alive is False else "running"


def about(entry: Entry, run: OpenRun) -> Values:
    """Returns the values that all pages of a run have."""
    history = run.history
    present = history.present()
    return {
        "entry": entry,
        "history": history,
        "plan": history.plan,
        "present": present,
        "version": run.version,
        "state": run_state(history).removeprefix("the run "),
        "kind": _kind(history),
        "batch": history.latest,
        "news": failure_texts(history, present) or current_texts(history, present),
        "spark_page": history.page if history.page.startswith(("http://", "https://")) else "",
    }


def overview(entry: Entry, run: OpenRun, catalog: Catalog) -> Values:
    """Returns the values of the first page of a run."""
    history, values = run.history, about(entry, run)
    charts = run.once("charts", RunCharts.of)
    health = Health(history, values["present"], charts.series, Frame.around(charts.series))
    total = run.once("totals", totals)
    unread = [*unread_input(history.batches, history.changed)]
    return values | {
        "title": history.plan.pipeline,
        "verdict": [text for text in health.verdict() if text not in values["news"]],
        "graph": graph(history.plan, history.latest),
        "sources": [*_sources(history, values["present"], total)],
        "stages": [*_stages(history, values["present"], total)],
        "why": waits(history, now=values["present"].now)[:_MOST_LINES],
        "unread": unread,
        "savepoints": [one for one in catalog.savepoints() if one.pipeline == history.plan.pipeline],
        "clock": clock,
    }


def _sources(history: History, present: Present, total: Mapping[str, Total]) -> Iterator[Values]:
    batch = history.latest
    for name, described in history.plan.sources.items():
        source = None if batch is None else batch.sources.get(name)
        held = "" if source is None else f"split {source.split}" if source.split else source.awaited
        yield {
            "name": name,
            "reads": described.reads,
            "strategy": described.watermark,
            "mark": "" if source is None else mark(source.watermark),
            "lag": "" if source is None else behind(present, source.watermark),
            "held": "idle" if source is not None and source.idle else held,
            "elements": total[name].elements,
            "lost": counts(total[name].lost),
        }


def _stages(history: History, present: Present, total: Mapping[str, Total]) -> Iterator[Values]:
    for name in history.plan.stages:
        stage = None if history.latest is None else history.latest.stages.get(name)
        yield {"name": name, **_stage_row(name, stage, total[name], present)}


def _stage_row(name: str, stage: StageRecord | None, total: Total, present: Present) -> Values:
    found = {
        "elements": total.elements,
        "panes": counts(total.panes),
        "dropped": counts(total.dropped),
        "pending": total.pending,
    }
    if stage is None:
        return found | dict.fromkeys(
            ("input", "output", "lag", "system", "held", "live", "bytes", "shards"), ""
        )
    held = stage.holder if stage.window is None else holder_text(stage.window, event_clock)
    return found | {
        "input": mark(stage.input),
        "output": mark(stage.output),
        "lag": behind(present, stage.output),
        "system": length(present.output_system_lag(name)),
        "held": held,
        "live": f"{stage.live:,}",
        "bytes": size(stage.bytes),
        "shards": _shards_text(stage),
    }


def _shards_text(stage: StageRecord) -> str:
    """Returns the number of shards, and how much more than the mean the largest one received in the last batch."""
    skew = "" if stage.skew is None else f", the largest with {stage.skew:.1f} times the mean"
    return f"{stage.shards}{skew}" if stage.shards else ""


def stage_page(entry: Entry, run: OpenRun, name: str, key: str, window: str) -> Values:
    """Returns the values of the page of a stage. With a key or window, it says why that has or has not fired."""
    history, values = run.history, about(entry, run)
    stage = history.plan.stages[name]
    record = None if history.latest is None else history.latest.stages.get(name)
    return values | {
        "title": f"{name}, stage of {history.plan.pipeline}",
        "name": name,
        "facts": [fact for fact in stage_facts(stage) if fact],
        "stage": stage,
        "row": _stage_row(name, record, run.once("totals", totals)[name], values["present"]),
        "key": key,
        "window": window,
        "answer": _answer(history, name, key, window),
        "holder": _holder(record),
        "late": [one for one in outputs(history) if _is_late_of(history, one, name)],
    }


def _is_late_of(history: History, output: Output, stage: str) -> bool:
    sink = history.plan.sinks.get(output.name)
    return sink is not None and sink.rows == "late" and stage in sink.inputs


def _answer(history: History, stage: str, key: str, window: str) -> list[str]:
    try:
        return waits(history, stage=stage, key=key or None, window=window or None)
    except ViewError as error:
        return [str(error)]


def _holder(record: StageRecord | None) -> Link | None:
    """Returns the window that holds the output watermark, as a link that asks about it."""
    window = None if record is None else record.window
    if window is None or window.timer is not None or window.table or window.said:
        return None
    return Link(holder_text(window), window.key, f"{format_time(window.start)}/{format_time(window.end)}")


def source_page(entry: Entry, run: OpenRun) -> Values:
    """Returns the values of the page of all sources."""
    history, values = run.history, about(entry, run)
    present, batch = values["present"], history.latest
    splits = [
        {
            "source": source,
            "split": name,
            "mark": mark(split.watermark),
            "lag": behind(present, split.watermark),
            "spoke": "never" if split.spoke is None else f"{length(max(0, present.time - split.spoke))} ago",
        }
        for source, record in (batch.sources.items() if batch is not None else ())
        for name, split in record.splits.items()
    ]
    return values | {
        "title": f"Sources of {history.plan.pipeline}",
        "sources": [*_sources(history, present, run.once("totals", totals))],
        "splits": splits,
        "unread": [*unread_input(history.batches, history.changed)],
    }


def batch_page(entry: Entry, run: OpenRun) -> Values:
    """Returns the values of the page of batches, the newest first."""
    history, values = run.history, about(entry, run)
    rows = []
    for batch in reversed(history.batches[-_MOST_BATCHES:]):
        took = (batch.finished or batch.processing_time) - batch.processing_time
        elements = sum(one.elements for one in batch.sources.values())
        panes = sum(sum(one.panes.values()) for one in batch.stages.values())
        dropped = sum(sum(one.dropped.values()) for one in batch.stages.values())
        rows.append(
            {
                "batch": batch.batch,
                "at": clock(batch.processing_time),
                "took": length(took),
                "elements": elements,
                "rate": rate(elements, took),
                "panes": panes,
                "dropped": dropped,
                "dead_letters": batch.set_aside.total(),
                "written": sum(batch.sinks.values()),
            }
        )
    return values | {"title": f"Batches of {history.plan.pipeline}", "batches": rows, "most": _MOST_BATCHES}


def row_page(entry: Entry, run: OpenRun, name: str | None, catalog: Catalog) -> Values:
    """Returns the values of the page of rows: what became of them, and the newest ones of one output."""
    history, values = run.history, about(entry, run)
    total, all_outputs = run.once("totals", totals), outputs(history)
    found = [one for one in all_outputs if catalog.has(one.folder)]
    chosen = next((one for one in found if one.name == name), None)
    return values | {
        "title": f"Rows of {history.plan.pipeline}",
        "sources": [
            (name, total[name].read, total[name].elements, counts(total[name].lost))
            for name in history.plan.sources
        ],
        "stages": [
            (name, one.placed, one.emitted, counts(one.panes), counts(one.lost), one.pending)
            for name in history.plan.stages
            for one in [total[name]]
        ],
        "steps": [(name, counts(total[name].lost)) for name in others(history, total)],
        "sinks": [(name, sink.writes, total[name].written) for name, sink in history.plan.sinks.items()],
        "errors": {} if history.latest is None else _errors(history),
        "outputs": found,
        "elsewhere": [one for one in all_outputs if one not in found],
        "chosen": chosen,
        "browsed": None if chosen is None else newest(chosen, catalog.has),
    }


def _errors(history: History) -> dict[str, str]:
    """Returns the reason of the last dead letter of each source and step."""
    found: dict[str, str] = {}
    for batch in history.batches:
        found |= batch.errors
    return found


def complete_page(entry: Entry, run: OpenRun) -> Values:
    """Returns the values of the page of completeness: promises, what panes stated, and what other bounds would lose."""
    history, values = run.history, about(entry, run)
    stated = any(stage.observes for stage in history.plan.stages.values())
    found = run.once("completeness", completeness, _SLOW) if stated else None
    return values | {
        "title": f"Completeness of {history.plan.pipeline}",
        "promises": [] if found is None else [*found.promises],
        "stated": "" if found is None else str(found),
        "tuning": run.once("tuning", _tuning, _SLOW),
    }


def _tuning(history: History) -> Sequence[str]:
    try:
        return str(tune(history)).splitlines()
    except ViewError as error:
        return [str(error)]
