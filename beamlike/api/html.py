"""HTML of collections and pipelines for notebooks. All text from users is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from beamlike.errors import PlanError
from beamlike.expressions.describe import aggregate_text, describe, text_of, windowing_choices
from beamlike.logical.origins import Apply, Configure, DeadLetters, Flatten, Group, Late, Origin, Read
from beamlike.rows.dtypes import type_name
from beamlike.system.html import html_text, page, table
from windowing.windowing import Windowing

_WORDS = {
    DeadLetters: "dead letters",
    Flatten: "the rows of several collections",
    Late: "dropped elements",
    Configure: "the same rows",
}


def collection_html(
    title: str, origin: Origin, inputs: Sequence[str], schema: pl.Schema, windowing: Windowing
) -> str:
    """Returns the HTML of a collection: its step, its inputs, its columns and its windowing."""
    facts = {"step": _made_by(origin)}
    if inputs:
        facts["from"] = ", ".join(inputs)
    facts |= windowing_choices(windowing)
    columns = [(name, type_name(dtype)) for name, dtype in schema.items()]
    return page(title, table(("column", "type"), columns), table(("", ""), facts.items()))


def _made_by(origin: Origin) -> str:
    match origin:
        case Read(source=source, watermark=watermark):
            return f"read {describe(source)}, {describe(watermark)}"
        case Group(keys=keys, aggregates=aggregates):
            what = ", ".join(
                f"{name} = {aggregate_text(aggregate)}" for name, aggregate in aggregates.items()
            )
            return f"group by {', '.join(keys) or 'window'}: {what}"
        case Apply(operator=operator):
            return ", ".join(f"{name} {fact}" for name, fact in operator.facts(text_of).items())
        case DeadLetters() | Flatten() | Late() | Configure():
            return _WORDS[type(origin)]
    return f"{origin.kind} {origin.detail()}"


def pipeline_html(name: str, picture: Callable[[], str], text: Callable[[], str]) -> str:
    """Returns the HTML of a pipeline's graph: a picture, or the text of `explain` if matplotlib is not installed."""
    return page(f"Pipeline {name!r}", _graph(picture, text))


def _graph(picture: Callable[[], str], text: Callable[[], str]) -> str:
    try:
        return picture()
    except ModuleNotFoundError:  # a PlanError, too
        return f"<pre>{html_text(text())}</pre>"
    except PlanError as error:
        return f"<p>{html_text(str(error))}</p>"
