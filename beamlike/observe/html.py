"""What notebooks show of collections, pipelines and runs. All text that is not ours is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from beamlike.errors import PlanError
from beamlike.expressions.describe import aggregate_text, describe, windowing_choices
from beamlike.logical.origins import Configure, DeadLetters, Flatten, Group, Late, Origin, Read
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.rows.dtypes import type_name
from beamlike.runtime.summary import Run, lost_rows
from beamlike.runtime.tables import TOTALS, total_rows

if TYPE_CHECKING:
    from beamlike.api.collection import Collection
    from beamlike.api.pipeline import Pipeline

_WORDS = {
    DeadLetters: "dead letters",
    Flatten: "the rows of several collections",
    Late: "dropped elements",
    Configure: "the same rows",
}


def collection_html(collection: Collection) -> str:
    """Its name and step, what it is made from, the columns, and the windowing."""
    facts = {"step": _made_by(collection.origin)}
    if collection.inputs:
        facts["from"] = ", ".join(before.name for before in collection.inputs)
    facts |= windowing_choices(collection.windowing)
    columns = [(name, type_name(dtype)) for name, dtype in collection.schema.items()]
    return _page(
        f"Collection {collection.name!r} of pipeline {collection.pipeline.name!r}",
        _table(("column", "type"), columns),
        _table(("", ""), facts.items()),
    )


def _made_by(origin: Origin) -> str:
    match origin:
        case Read(source=source, watermark=watermark):
            return f"read {describe(source)}, {describe(watermark)}"
        case Group(keys=keys, aggregates=aggregates):
            what = ", ".join(
                f"{name} = {aggregate_text(aggregate)}" for name, aggregate in aggregates.items()
            )
            return f"group by {', '.join(keys) or 'window'}: {what}"
        case DeadLetters() | Flatten() | Late() | Configure():
            return _WORDS[type(origin)]
    return f"{origin.kind} {origin.detail()}"


def pipeline_html(pipeline: Pipeline) -> str:
    """Its graph: the picture, or as text where there is no matplotlib."""
    return _page(f"Pipeline {pipeline.name!r}", _graph(pipeline))


def _graph(pipeline: Pipeline) -> str:
    try:
        return pipeline.plot().svg(f"pipeline-{pipeline.name}")
    except PlanError as error:
        return f"<p>{escape(str(error))}</p>"
    except ModuleNotFoundError:
        return f"<pre>{escape(pipeline.explain())}</pre>"


def run_html(run: Run) -> str:
    """What came and went in it, the rows of its sinks, and what it could not use or dropped."""
    written = sum((Counter(record.sinks) for record in run.batches), Counter[str]())
    sinks = [
        (run.dead_letters if name == UNCLAIMED else name, f"{count:,}")
        for name, count in sorted({**dict.fromkeys(run.plan.sinks, 0), **written}.items())
    ]
    count = len(run.batches)
    return _page(
        f"{type(run).__name__} of {run.plan.name!r}: {count:,} batch{'es' if count != 1 else ''}",
        _table(TOTALS, total_rows(run.batches)),
        _table(("sink", "rows"), sinks),
        *_list(lost_rows(run)),
    )


def _page(title: str, *parts: str) -> str:
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads) if any(heads) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head and f'<thead><tr>{head}</tr></thead>'}<tbody>{body}</tbody></table>"


def _list(lines: Iterable[str]) -> Iterator[str]:
    if items := "".join(f"<li>{escape(line)}</li>" for line in lines):
        yield f"<ul>{items}</ul>"
