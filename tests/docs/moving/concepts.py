"""The run of docs/concepts.md: rows, the watermark, and the panes that windows emit."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import attrs

from beamlike.observe.charts.figure import BLUE, GREEN, GREY, PALE, SKY, VERMILION
from tests.docs.moving.drawing import PANE_COLOURS, box, picture, text
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "concepts.md"
PICTURE = ROOT / "docs" / "pictures" / "concepts.svg"

_LEFT, _TOP, _ROW, _MINUTE = 62, 46, 58, 165
_MINUTES = 4
_MICROSECONDS_PER_MINUTE = 60_000_000


@attrs.frozen
class Played:
    """The run of the page: its records, the elements of each batch, the emitted panes, and the dropped rows."""

    batches: list[Any]
    elements: list[list[dict[str, Any]]]
    panes: list[tuple[int, dict[str, Any]]]
    dropped: set[str]

    @property
    def start(self) -> int:
        """The start of the first window, in microseconds."""
        first = min(_micros(row["at"]) for rows in self.elements for row in rows)
        return first - first % _MICROSECONDS_PER_MINUTE

    def x(self, micros: float) -> float:
        """Returns the horizontal position of an event time."""
        return _LEFT + _MINUTE * min(max(self._minutes(micros), 0), _MINUTES)

    def _minutes(self, micros: float) -> float:
        return (micros - self.start) / _MICROSECONDS_PER_MINUTE


def play() -> Played:
    """Runs the code of the page."""
    names: dict[str, Any] = {}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S))
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
    return Played(
        batches=list(names["run"].batches),
        elements=[step.elements.rows(named=True) for step in names["stream"].steps],
        panes=names["panes"],
        dropped={row["at"] for row in names["late"].rows()},
    )


def draw(played: Played) -> str:
    """Returns the picture as SVG."""
    count = len(played.batches)
    width, height = _LEFT + _MINUTE * _MINUTES + 20, _TOP + _ROW * count + 34
    body = [*_windows(played, height), *_batches(played), *_legend(height)]
    return picture("Rows, watermark and panes of each batch", width, height, count, body)


def _windows(played: Played, height: int) -> Iterator[str]:
    for minute in range(_MINUTES):
        x = _LEFT + minute * _MINUTE
        if minute % 2 == 0:
            yield f'<rect x="{x}" y="28" width="{_MINUTE}" height="{height - 62}" fill="#f4f4f4"/>'
        start = datetime.fromtimestamp(played.start / 1e6 + 60 * minute, UTC)
        yield text(x + _MINUTE / 2, 20, f"window {start:%H:%M}", weight="bold")


def _batches(played: Played) -> Iterator[str]:
    for number in range(len(played.batches)):
        y = _TOP + number * _ROW
        yield f'<g class="b{number}">'
        yield f'<line x1="8" x2="{_LEFT + _MINUTE * _MINUTES}" y1="{y - 10}" y2="{y - 10}" stroke="{PALE}"/>'
        at_end = number >= len(played.elements)
        yield text(8, y + 18, "the end" if at_end else f"batch {number}", anchor="start", colour=GREY)
        yield from _watermark(played, number, y)
        if not at_end:
            yield from _elements(played, number, y)
        yield from _panes(played, number, y)
        yield "</g>"


def _watermark(played: Played, number: int, y: int) -> Iterator[str]:
    after = played.batches[number].stages["totals"].input
    before = played.batches[number - 1].stages["totals"].input if number else after
    path = f"M{played.x(before):.0f} {y - 10}H{played.x(after):.0f}V{y + _ROW - 10}"
    yield f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>'


def _elements(played: Played, number: int, y: int) -> Iterator[str]:
    watermark = played.batches[number - 1].stages["totals"].input if number else float("-inf")
    for row in played.elements[number]:
        x, at = played.x(_micros(row["at"])), row["at"]
        kind = "dropped" if at in played.dropped else "late" if _micros(at) < watermark else ""
        fill, edge = ("#fff", VERMILION) if kind == "dropped" else (SKY, VERMILION if kind else SKY)
        yield f'<circle cx="{x:.0f}" cy="{y + 3}" r="9" fill="{fill}" stroke="{edge}" stroke-width="2"/>'
        yield text(x, y + 7, str(row["points"]))
        if kind:
            yield text(x + 13, y + 7, kind, anchor="start", colour=VERMILION)


def _panes(played: Played, number: int, y: int) -> Iterator[str]:
    for batch, pane in played.panes:
        if batch == number:
            start = pane["window_start"].timestamp() * 1e6
            x = played.x(start) + _MINUTE / 2 - 46
            colour = PANE_COLOURS[pane["pane_timing"]]
            yield box(x, y + 19, 92, 20, colour)
            yield text(x + 46, y + 33, f"{pane['pane_timing'].replace('_', ' ')}: {pane['total']}")


def _legend(height: int) -> Iterator[str]:
    y = height - 14
    yield f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{y - 4}" y2="{y - 4}" stroke="{BLUE}" stroke-width="2.5"/>'
    yield text(_LEFT + 30, y, "watermark", anchor="start")
    yield f'<circle cx="{_LEFT + 125}" cy="{y - 4}" r="7" fill="{SKY}"/>'
    yield text(_LEFT + 138, y, "row, with its points", anchor="start")
    yield box(_LEFT + 280, y - 13, 24, 17, GREEN)
    yield text(_LEFT + 310, y, "pane, with the total of its window", anchor="start")


def _micros(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1_000_000)
