"""`python -m tests.docs.moving` draws docs/pictures/concepts.svg from the run of docs/concepts.md.

The picture shows a batch after the other, by an animation that browsers play without a script. Where motion is not
wanted, as in print, all batches are shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

import attrs

from beamlike.observe.charts.figure import BLUE, GREEN, GREY, ORANGE, PALE, SKY, VERMILION
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "concepts.md"
PICTURE = ROOT / "docs" / "pictures" / "concepts.svg"

_PANE_COLOURS = {"early": ORANGE, "on_time": GREEN, "late": VERMILION}
_LEFT, _TOP, _ROW, _MINUTE = 62, 46, 58, 165
_MINUTES = 4
_SECONDS_PER_BATCH = 2
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
        """The horizontal position of an event time."""
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
    body = "\n".join([*_windows(played, height), *_batches(played), *_legend(height)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' font-family="sans-serif" font-size="12">\n'
        "<title>Rows, watermark and panes of each batch</title>\n"
        f"<style>\n{_animation(count)}\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _animation(count: int) -> str:
    """A rule for each batch, which shows it from its turn on; the last turn is three times as long."""
    total = count + 2
    rules = [
        f"@keyframes b{batch} {{ 0%, {100 * batch / total:.2f}% {{ opacity: 0 }}"
        f" {100 * (batch + 0.2) / total:.2f}%, 100% {{ opacity: 1 }} }}\n"
        f".b{batch} {{ animation: b{batch} {total * _SECONDS_PER_BATCH}s infinite }}"
        for batch in range(1, count)
    ]
    return "@media screen and (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}"


def _windows(played: Played, height: int) -> Iterator[str]:
    for minute in range(_MINUTES):
        x = _LEFT + minute * _MINUTE
        if minute % 2 == 0:
            yield f'<rect x="{x}" y="28" width="{_MINUTE}" height="{height - 62}" fill="#f4f4f4"/>'
        start = datetime.fromtimestamp(played.start / 1e6 + 60 * minute, UTC)
        yield _text(x + _MINUTE / 2, 20, f"window {start:%H:%M}", weight="bold")


def _batches(played: Played) -> Iterator[str]:
    for number in range(len(played.batches)):
        y = _TOP + number * _ROW
        yield f'<g class="b{number}">'
        yield f'<line x1="8" x2="{_LEFT + _MINUTE * _MINUTES}" y1="{y - 10}" y2="{y - 10}" stroke="{PALE}"/>'
        at_end = number >= len(played.elements)
        yield _text(8, y + 18, "the end" if at_end else f"batch {number}", anchor="start", colour=GREY)
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
        yield _text(x, y + 7, str(row["points"]))
        if kind:
            yield _text(x + 13, y + 7, kind, anchor="start", colour=VERMILION)


def _panes(played: Played, number: int, y: int) -> Iterator[str]:
    for batch, pane in played.panes:
        if batch == number:
            start = pane["window_start"].timestamp() * 1e6
            x = played.x(start) + _MINUTE / 2 - 46
            colour = _PANE_COLOURS[pane["pane_timing"]]
            yield _box(x, y + 19, 92, 20, colour)
            yield _text(x + 46, y + 33, f"{pane['pane_timing'].replace('_', ' ')}: {pane['total']}")


def _legend(height: int) -> Iterator[str]:
    y = height - 14
    yield f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{y - 4}" y2="{y - 4}" stroke="{BLUE}" stroke-width="2.5"/>'
    yield _text(_LEFT + 30, y, "watermark", anchor="start")
    yield f'<circle cx="{_LEFT + 125}" cy="{y - 4}" r="7" fill="{SKY}"/>'
    yield _text(_LEFT + 138, y, "row, with its points", anchor="start")
    yield _box(_LEFT + 280, y - 13, 24, 17, GREEN)
    yield _text(_LEFT + 310, y, "pane, with the total of its window", anchor="start")


def _text(
    x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#222", weight: str = "normal"
) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-weight="{weight}">{escape(text)}</text>'


def _box(x: float, y: float, width: int, height: int, colour: str) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" width="{width}" height="{height}"'
    return f'<rect {place} rx="4" fill="#fff" stroke="{colour}" stroke-width="2"/>'


def _micros(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1_000_000)


if __name__ == "__main__":
    PICTURE.write_text(draw(play()), encoding="utf-8")
