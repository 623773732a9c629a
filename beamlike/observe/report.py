"""A report about a run: an HTML page with its graph, charts and tables, which needs no other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from beamlike.observe.charts.charts import Charts
from beamlike.observe.charts.figure import Picture
from beamlike.observe.charts.plot import stage_facts
from beamlike.observe.completeness.calibration import completeness
from beamlike.observe.health import Health
from beamlike.observe.totals import Total, others, totals
from beamlike.observe.waiting.explain import run_state, waits
from beamlike.observe.words import clock, counts, holder_text, length, rows
from beamlike.records.history import History
from beamlike.records.model import MOST_SPLITS, BatchRecord, StageRecord, is_a_time
from beamlike.records.present import Present
from beamlike.records.unread import unread_input
from beamlike.system.html import html_text

_GRAPH = (
    "Sources, stages and sinks from left to right, with their watermarks after that batch. A thick dashed arrow marks "
    "the input that holds the input watermark, as it is furthest behind. If a key and window hold the output "
    "watermark further back, the box names them."
)
_SOURCES = (
    "Large chart: event time across, processing time up; a line shows how far in event time a source is complete. "
    "Event time equals processing time on the dotted line: sources near it are fresh. Small charts, over processing "
    "time: the lag of each watermark, the number of elements, and the number of rows without a readable event time."
)
_STAGES = (
    "Large chart: event time across, processing time up. The input watermark is the least watermark of the stage's "
    "inputs. The output watermark is at or left of it; the distance is added by the stage itself. Panes are drawn at "
    "the input watermark at which they were emitted, larger for more panes. Vertical dashes are the ends of windows: "
    "an on-time pane is emitted when the input watermark crosses one. The shaded area is held back by earlier stages: "
    "the sources are already complete there. At the end of input a watermark is at the right edge."
)
_LAGS = (
    "Small charts, over processing time. Event-time lag: the distance of a watermark behind processing time or, if "
    "elements are old, behind the most advanced source. Processing-time lag: the duration from the beginning of a "
    "batch to the end of the stage's work. If only the first lag grows, data are old or wait for a window to close; a "
    "saw-tooth shows windows that open and close. If both lags grow, the stage is stuck or too slow."
)

_WORK = (
    "Every row is accounted for. Source: rows in = emitted elements + removed rows. Stage, whose elements count once "
    "for each of their windows: rows in = emitted in a pane + removed + pending. Sink: rows in are the rows written."
)

_SPLITS = f"At most {MOST_SPLITS} splits of each source, those furthest behind after that batch."

_CALIBRATION = (
    "A dot for each window and batch with panes: across, the share of its rows that the panes stated to have arrived; "
    "up, the share that really had. On the dotted line both are equal; above it, more rows had arrived than stated."
)

_MOST_SENTENCES = 8
_LEAST = 0.75  # the smallest share of its size to which a picture that is wider than the page may be reduced
_CODE = re.compile("`([^`]*)`")


def write_report(history: History, path: str | os.PathLike[str], now: int | None = None) -> None:
    """Writes the report of a run to a file, and creates its folder.

    Equal histories give equal pages; the page of a run in progress also depends on the time. Needs matplotlib, from the
    extra `report`.

    Args:
        history: The history of the run.
        path: The HTML file.
        now: The time of the report in microseconds; by default this machine's.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> bl.observe.write_report(bl.observe.History.open("plays.jsonl"), "reports/plays.html")
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report(history, now), encoding="utf-8")


def report(history: History, now: int | None = None) -> str:
    """Returns the report of a run as HTML."""
    template = Template(files("beamlike.observe").joinpath("report.html").read_text(encoding="utf-8"))
    charts, present = Charts.of(history), history.present(now)
    health = Health(history, present, charts.series, charts.frame)
    return template.substitute(
        title=html_text(f"{history.plan.pipeline}: watermarks"),
        heading=html_text(history.plan.pipeline),
        verdict="".join(paragraph(text) for text in health.verdict()),
        summary=html_text(_summary(history)),
        body="\n".join(_sections(charts, present)),
    )


def _summary(history: History) -> str:
    first, last = (history.batches[0], history.batches[-1]) if history.batches else (None, None)
    if first is None or last is None:
        return "no batch has been recorded yet"
    state = run_state(history)
    count = sum(batch.batches for batch in history.batches)
    took = length((last.finished or last.processing_time) - first.processing_time)
    return (
        f"{rows(count, 'batch').replace('batchs', 'batches')}, from {clock(first.processing_time)}, "
        f"over {took}; {state}. Times are UTC."
    )


def _sections(charts: Charts, present: Present) -> Iterable[str]:
    history = charts.history
    latest, moving = history.latest, _last_before_the_end(history)
    yield f"<h2>Watermarks{' before the end' if moving is not latest else ''}</h2>"
    if moving is not None:
        which = "the last before the end of input" if moving is not latest else "the last"
        yield f"<p>After batch {moving.batch}, at {html_text(clock(moving.processing_time))}, {which}:</p>"
    yield _figure(charts.graph(moving), "graph", "The graph of the pipeline", _GRAPH, fit=False)
    if moving is None or latest is None:
        return
    then = present if moving is latest else Present(moving)
    yield _watermarks(charts, then, moving)
    yield f"<h2>Waits after batch {latest.batch}</h2>"
    unread = [*unread_input(history.batches, history.changed)]
    yield _sentences(waits(history, now=present.now))
    yield "<h2>Rows</h2>"
    yield from map(paragraph, unread)
    yield _work(charts, latest)
    yield from _completeness(history)
    yield "<h2>Sources</h2>"
    yield _note(_SOURCES)
    yield _figure(charts.sources(), "sources", "Watermarks and elements of all sources")
    yield _splits(charts, then)
    yield "<h2>Stages</h2>"
    yield _note(_STAGES)
    yield _note(_LAGS)
    for number, (name, stage) in enumerate(charts.history.plan.stages.items()):
        about = f"{'; '.join(stage_facts(stage))}. Reads from {', '.join(stage.inputs)}."
        figure = _figure(
            charts.stage(name), f"stage-{number}", f"Watermarks, lags and panes of stage {name}", about
        )
        yield f"<section class='stage'><h3>{html_text(name)}</h3>{figure}</section>"


def _last_before_the_end(history: History) -> BatchRecord | None:
    """Returns the last batch after which a watermark was finite; without any, the last batch."""
    for batch in reversed(history.batches):
        if any(is_a_time(source.watermark) for source in batch.sources.values()) or any(
            is_a_time(stage.output) for stage in batch.stages.values()
        ):
            return batch
    return history.latest


def _sentences(texts: Sequence[str]) -> str:
    """Returns sentences as paragraphs. All but the first ones are folded."""
    paragraphs = [paragraph(text) for text in texts]
    first, others = "".join(paragraphs[:_MOST_SENTENCES]), "".join(paragraphs[_MOST_SENTENCES:])
    return f"{first}<details><summary>All stages</summary>{others}</details>" if others else first


def paragraph(text: str) -> str:
    """Returns a sentence as a paragraph. Names in backticks become code."""
    sentence = f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")
    return "<p>" + _CODE.sub(r"<code>\1</code>", html_text(sentence)) + "</p>"


def _figure(picture: Picture, salt: str, says: str, caption: str = "", *, fit: bool = True) -> str:
    """Returns a picture as HTML: as wide as the page or, with `fit=False`, in its own size, slightly reduced if
    necessary.

    `says` describes the picture for screen readers.
    """
    least = f"--least: {float(picture.get_size_inches()[0]) * 72 * _LEAST:.0f}pt"
    svg = picture.svg(salt).replace(
        "<svg ", f'<svg role="img" aria-label="{html_text(says)}" style="{least}" ', 1
    )
    below = f"<figcaption>{html_text(caption)}</figcaption>" if caption else ""
    return f"<figure{' class=fit' if fit else ''}>{svg}{below}</figure>"


def _watermarks(charts: Charts, present: Present, batch: BatchRecord) -> str:
    """Returns the table of all watermarks, with their lags and what holds them."""
    text = charts.frame.event.clock
    lines = []
    for name in charts.history.plan.sources:
        if name in batch.sources:
            source = batch.sources[name]
            held = f"split {source.split}" if source.split is not None else source.awaited
            held = "idle" if source.idle else held
            lines.append(
                [name, "", text(source.watermark), _lag(charts, present, source.watermark), "", held]
            )
    for name in charts.history.plan.stages:
        if name in batch.stages:
            stage = batch.stages[name]
            system = length(present.output_system_lag(name))
            marks = [text(stage.input), text(stage.output), _lag(charts, present, stage.output), system]
            held = stage.holder if stage.window is None else holder_text(stage.window, text)
            lines.append([name, *marks, held])
    names = ["source or stage", "input", "output", charts.frame.lag_title, "processing-time lag", "held by"]
    return _table(names, lines, numbers=range(1, 5))


def _splits(charts: Charts, present: Present) -> str:
    """Returns the table of the splits that are furthest behind, after the last batch before the end of input."""
    text, batch = charts.frame.event.clock, present.batch
    sources = batch.sources.items() if batch is not None else ()
    splits = [(one, name, split) for name, source in sources for split, one in source.splits.items()]
    lines = [
        [name, split, text(one.watermark), _lag(charts, present, one.watermark), _ago(present, one.spoke)]
        for one, name, split in sorted(splits, key=lambda known: (known[0].watermark, *known[1:]))
    ]
    names = ["source", "split", "watermark", charts.frame.lag_title, "last row"]
    return _table(names, lines, numbers=(2, 3, 4)) + _note(_SPLITS) if lines else ""


def _ago(present: Present, time: int | None) -> str:
    return "never" if time is None else f"{length(max(0, present.time - time))} ago"


def _lag(charts: Charts, present: Present, watermark: int) -> str:
    """Returns the lag behind processing time, or behind the newest source, as in the charts."""
    if not is_a_time(watermark):
        return ""
    sources = present.batch.sources.values() if present.batch is not None else ()
    marks = [source.watermark for source in sources if is_a_time(source.watermark)]
    reference = present.time if charts.frame.newest is None else max(marks, default=watermark)
    return length(reference - watermark)


def _work(charts: Charts, batch: BatchRecord) -> str:
    """Returns the table of rows: read, emitted, removed by reason, and in state."""
    total, plan = totals(charts.history), charts.history.plan
    lines = [_source_line(name, total[name]) for name in plan.sources]
    lines += [_stage_line(name, total[name], batch.stages.get(name)) for name in plan.stages]
    lines += [
        [name, "", "", "", counts(total[name].lost), *[""] * 4] for name in others(charts.history, total)
    ]
    lines += [[name, f"{total[name].written:,}", *[""] * 7] for name in plan.sinks]
    names = ["source, stage, step or sink", "rows in", "emitted", "panes", "removed"]
    state_names = ["pending", "windows in state", "keys in state", "bytes of state"]
    return _table([*names, *state_names], lines, numbers=(1, 2, 5, 6, 7, 8)) + _note(_WORK)


def _source_line(name: str, total: Total) -> list[str]:
    return [name, f"{total.read:,}", f"{total.elements:,}", "", counts(total.lost), *[""] * 4]


def _stage_line(name: str, total: Total, stage: StageRecord | None) -> list[str]:
    state = [] if stage is None else [f"{one:,}" for one in (stage.live, stage.keys, stage.bytes)]
    if stage is not None and stage.timers:
        state[0] += f" with {stage.timers:,} timers"
    panes = counts({**total.panes, **({"fired": total.fired} if total.fired else {})})
    went = [f"{total.placed:,}", f"{total.emitted:,}", panes, counts(total.lost)]
    return [name, *went, f"{total.pending:,}", *(state or ["", "", ""])]


def _completeness(history: History) -> Iterable[str]:
    """Returns the section about the completeness that panes stated, if they did."""
    if not any(stage.observes for stage in history.plan.stages.values()):
        return
    found = completeness(history)
    yield "<h2>Completeness</h2>"
    yield from map(paragraph, str(found).splitlines()[: len(found.promises)])
    if any(one.really is not None and one.stated is not None for one in found.windows):
        yield _figure(
            found.plot(), "completeness", "Stated and real completeness of windows", _CALIBRATION, fit=False
        )
    yield from map(paragraph, found.notes())


def _note(text: str) -> str:
    return f"<p class='note'>{html_text(text)}</p>"


def _table(names: Sequence[str], lines: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """Returns an HTML table. The first column has names, and the columns in `numbers` have numbers."""

    def row(tag: str, cells: Sequence[str]) -> str:
        kinds = (
            "name" if place == 0 else "number" if place in numbers else "" for place in range(len(cells))
        )
        return "".join(
            f"<{tag} class='{kind}'>{html_text(text)}</{tag}>"
            for kind, text in zip(kinds, cells, strict=True)
        )

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in lines)
    return f"<div class='scroll'><table><thead><tr>{row('th', names)}</tr></thead><tbody>{body}</tbody></table></div>"
