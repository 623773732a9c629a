"""The watermark of a source with two partitions, one of which becomes idle and is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

import beamlike as bl
from beamlike.observe.charts.figure import BLUE, GREEN, GREY, PALE, RUST, VERMILION
from tests.docs.moving.drawing import line, picture, text
from tests.support.places import ROOT

PICTURE: Final = ROOT / "docs" / "pictures" / "splits.svg"

_SECOND: Final = 1_000_000
_LEFT, _TOP, _ROW, _WIDE, _SECONDS = 150, 50, 56, 11, 52
_COLOURS: Final = {"p0": GREEN, "p1": RUST}
_STEPS: Final[tuple[list[tuple[int, str]] | str, ...]] = (
    [(10, "p0"), (8, "p1")],
    [(30, "p0")],
    "31s",
    [(40, "p0"), (25, "p0")],
    [(31, "p1"), (45, "p0")],
)
"""The event times and partitions of the rows of each batch, or the processing time that passes."""


@attrs.frozen
class Played:
    """The watermark of the source after each batch (s), and those of its partitions."""

    source: list[float]
    splits: list[dict[str, float]]


def play() -> Played:
    """Runs the strategy of the fourth line on docs/watermarks.md."""
    stream = bl.TestStream({"partition": str, "at": int})
    for step in _STEPS:
        if isinstance(step, str):
            stream = stream.advance_processing_time(step)
        else:
            stream = stream.add_elements([{"partition": name, "at": at} for at, name in step])
    strategy = bl.BoundedOutOfOrderness("5s", per_split="partition", idle_after="30s")
    p = bl.Pipeline("splits")
    p.read("plays", stream, timestamp="at", timestamp_unit="s", watermark=strategy).write("out", bl.Memory())
    records = [batch.sources["plays"] for batch in p.run().batches[: len(_STEPS)]]
    return Played(
        [record.watermark / _SECOND for record in records],
        [{name: one.watermark / _SECOND for name, one in record.splits.items()} for record in records],
    )


def draw(played: Played) -> str:
    """Returns the picture as SVG."""
    width, height = _LEFT + _WIDE * _SECONDS + 20, _TOP + _ROW * len(_STEPS) + 42
    body = [*_scale(height), *_batches(played), *_legend(height)]
    return picture("The watermarks of two partitions and of their source", width, height, len(_STEPS), body)


def _x(seconds: float) -> float:
    return _LEFT + _WIDE * seconds


def _scale(height: int) -> Iterator[str]:
    yield text(8, 20, "event time", anchor="start", weight="bold")
    for seconds in range(0, _SECONDS, 10):
        yield line(_x(seconds), 28, _x(seconds), height - 36, PALE)
        yield text(_x(seconds), 20, str(seconds))


def _batches(played: Played) -> Iterator[str]:
    for number, step in enumerate(_STEPS):
        y = _TOP + number * _ROW
        yield f'<g class="b{number}">'
        yield line(8, y - 12, _x(_SECONDS), y - 12, PALE)
        said = f"batch {number}" if not isinstance(step, str) else f"{step} without rows"
        yield text(8, y + 12, said, anchor="start", colour=GREY)
        if not isinstance(step, str):
            yield from _rows(step, number, played, y)
        for name, mark in played.splits[number].items():
            before = played.splits[number - 1].get(name, mark) if number else mark
            yield _step(before, mark, y, _COLOURS[name], 1.5)
        before = played.source[number - 1] if number else played.source[number]
        yield _step(before, played.source[number], y, BLUE, 3.5)
        yield "</g>"


def _rows(step: list[tuple[int, str]], number: int, played: Played, y: int) -> Iterator[str]:
    watermark = played.source[number - 1] if number else float("-inf")
    for at, name in step:
        late = at < watermark
        colour = _COLOURS[name]
        look = f'fill="{"#fff" if late else colour}" stroke="{colour}" stroke-width="2"'
        yield f'<circle cx="{_x(at):.0f}" cy="{y + 8}" r="6" {look}/>'
        if late:
            yield text(_x(at) - 10, y + 12, "late", anchor="end", colour=VERMILION)


def _step(before: float, after: float, y: int, colour: str, width: float) -> str:
    path = f"M{_x(before):.0f} {y - 12}H{_x(after):.0f}V{y + _ROW - 12}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" stroke-opacity="0.8"/>'


def _legend(height: int) -> Iterator[str]:
    y = height - 12
    labels = ((GREEN, "row and watermark of p0"), (RUST, "of p1"), (BLUE, "watermark of the source"))
    x = _LEFT
    for colour, said in labels:
        yield line(x, y - 4, x + 24, y - 4, colour, 3.5 if colour == BLUE else 1.5)
        yield text(x + 30, y, said, anchor="start")
        x += 60 + 7 * len(said)
