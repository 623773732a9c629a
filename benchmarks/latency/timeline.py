"""The milliseconds between an element and its pane in process: measures the phases of batches, and draws a typical one.

    python -m benchmarks.latency.timeline                    # windows of a second, 10 thousand elements a second

A pane waits for the batch before its own, then for all phases of its own batch, then for the reader. The figures are
medians over all panes of the run; the picture shows the batch whose latency is the median. A run with timers is a
little slower than one without.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.latency import report
from benchmarks.latency.__main__ import observed
from benchmarks.latency.report import Engine
from benchmarks.latency.traced import Span
from benchmarks.latency.warm import warm
from benchmarks.machine import machine
from benchmarks.section import Section
from examples.drawing import figures as drawn
from examples.drawing import save
from tests.connectors.kafka import broker

DOCS: Final = Path(__file__).parents[2] / "docs"
PICTURE: Final = DOCS / "pictures" / "latency-of-a-batch.svg"

PARTS: Final[Mapping[str, str]] = {
    "before": "wait for the batch before",
    "poll": "poll of the client",
    "log": "log of the input, in another thread",
    "read": "decode",
    "sources": "watermarks",
    "stages": "stages",
    "wait for the log": "wait for the log on disk",
    "encode": "encode and produce",
    "offsets": "number of the batch in the transaction",
    "commit": "commit of the transaction",
    "between": "everything between",
    "reader": "until the reader has the pane",
}


def batches(spans: Sequence[Span]) -> Iterator[dict[str, Span]]:
    """Yields the phases of each batch with panes, by name. A poll belongs to the batch after it."""
    found: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: span[2]):
        name = span[0]
        if name == "transaction":
            name = "commit" if "offsets" in found else "offsets"
        if name == "rest":
            found = {}
            continue
        found[name] = span
        if name == "records and commit":
            if "commit" in found:
                yield found
            found = {}


def parts(batch: Mapping[str, Span], arrived: float, came: float) -> dict[str, tuple[float, float]]:
    """Returns the parts of a pane's latency: begin and duration in ms, since the arrival of its last element."""
    begin = batch["poll"][1]
    spans = {name: batch[name][1:3] for name in PARTS if name in batch}
    spans |= {"before": (arrived, begin), "reader": (batch["commit"][2], came)}
    found = {name: (1e3 * (at - arrived), 1e3 * max(0.0, to - at)) for name, (at, to) in spans.items()}
    known = sum(length for _, length in found.values())
    return {**found, "between": (0.0, max(0.0, 1e3 * (came - arrived) - known))}


def matched(spans: Sequence[Span], panes: Sequence[tuple[int, int]]) -> list[dict[str, tuple[float, float]]]:
    """Returns the parts of each moment at which panes were read, with the first batch that was committed."""
    made = list(batches(spans))
    found = []
    for arrived, came in sorted(dict(reversed(panes)).items()):
        before = [batch for batch in made if arrived / 1e3 < batch["commit"][2] <= came / 1e3 + 0.002]
        if before:
            found.append(parts(before[0], arrived / 1e3, came / 1e3))
    return found


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the table of the page: medians of each part, by job and rate."""
    names = [
        f"{each['job']}, {each['rate']:,} a second: {kind}" for each in figures for kind in ("ms", "CPU ms")
    ]
    rows = [
        (title, *(cell for each in figures for cell in _cells(each, part))) for part, title in PARTS.items()
    ]
    total = ("all", *(cell for each in figures for cell in (f"{each['total']:.1f}", "")))
    return readme.table(("medians", *names), [*rows, total])


def _cells(figure: Figures, part: str) -> tuple[str, str]:
    used = figure["cpu"].get(part)
    return f"{figure['median'][part]:.1f}", "" if used is None else f"{used:.1f}"


SECTION: Final = Section("timeline", ("job", "rate"), lines, page=DOCS / "latency.md")


def draw(figure_of: Figures, path: Path) -> None:
    """Draws the typical batch, a bar for each part."""
    typical = {part: tuple(span) for part, span in figure_of["typical"].items() if part != "between"}
    shown = [part for part in PARTS if part in typical]
    figure, ((axes,),) = drawn(1, 1, (8.5, 0.6 + 0.32 * len(shown)))
    for row, part in enumerate(reversed(shown)):
        begin, length = typical[part]
        colour = {"before": "C7", "reader": "C7", "stages": "C0", "wait for the log": "C3"}.get(part, "C1")
        axes.barh(row, max(length, 0.05), left=begin, color=colour, height=0.7)
        axes.annotate(f"{length:.1f}", (begin + length, row), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(shown)), [PARTS[part] for part in reversed(shown)])
    axes.set_xlabel("milliseconds after the broker has the element that ends the window")
    axes.margins(x=0.08)
    axes.grid(alpha=0.3, axis="x")
    save(figure, path)


def measured(job: str, rate: int, seconds: int) -> dict[str, Any]:
    """Measures the medians of all parts, and the parts of the moment with the median latency."""
    spans = list[Span]()

    def keep(folder: Path) -> None:
        spans.extend(tuple(span) for span in json.loads((folder / "spans.json").read_text()))

    engine = Engine("beamlike, in process, timed", ["-m", "benchmarks.latency.traced"])
    with broker() as cluster:
        warm(cluster)
        panes = observed(cluster, engine, job, rate, seconds, Path("build/bench-envs"), done=keep)
    found = matched(spans, panes)
    medians = {part: statistics.median(each[part][1] for each in found if part in each) for part in PARTS}
    totals = [each["reader"][0] + each["reader"][1] for each in found]
    typical = found[totals.index(sorted(totals)[len(totals) // 2])]
    made = list(batches(spans))
    used = {
        part: 1e3 * statistics.median(each[part][3] for each in made if part in each)
        for part in PARTS
        if any(part in each for each in made)
    }
    common = {"job": job, "rate": rate, "cpu": used}
    return {**common, "moments": len(found), "median": medians, "typical": typical} | {
        "total": statistics.median(totals)
    }


@click.command(context_settings={"show_default": True})
@click.option("--job", default="windows", type=click.Choice(report.JOBS))
@click.option("--rate", default=10_000, help="Elements a second.")
@click.option("--seconds", default=25, help="How long it is measured, once it is warm.")
def main(job: str, rate: int, seconds: int) -> None:
    """Measures, keeps and draws."""
    figure = measured(job, rate, seconds)
    SECTION.keep([figure], machine(find_java()))
    if (job, rate) == ("windows", 10_000):
        draw(figure, PICTURE)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
