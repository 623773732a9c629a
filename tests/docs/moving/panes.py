"""A window in three accumulation modes: the panes that it emits early, on time and late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

import beamlike as bl
from beamlike.observe.charts.figure import BLUE, GREY, PALE, SKY, VERMILION
from tests.docs.moving.drawing import PANE_COLOURS, box, line, picture, text
from tests.support.places import ROOT

PICTURE: Final = ROOT / "docs" / "pictures" / "accumulation.svg"
MODES: Final = (bl.DISCARDING, bl.ACCUMULATING, bl.RETRACTING)

_SECOND: Final = 1_000_000
_LEFT, _ROWS, _TOP, _ROW, _MODE, _PANE = 62, 150, 52, 58, 168, 74
_STEPS: Final[tuple[list[int] | int, ...]] = ([5], [7, 1], 60, [3], 90)
"""The points that arrive in each batch, or the second to which the watermark advances."""


@attrs.frozen
class Played:
    """The panes of each mode by batch, as (timing, total, retracted), and the watermark after each batch (s)."""

    panes: dict[str, list[list[tuple[str, int, bool]]]]
    watermarks: list[float]


def play() -> Played:
    """Runs the same rows with each mode."""
    panes: dict[str, list[list[tuple[str, int, bool]]]] = {}
    watermarks: list[float] = []
    for mode in MODES:
        found: list[list[tuple[str, int, bool]]] = [[] for _ in _STEPS]
        watermarks = [record.stages["total"].input / _SECOND for record in _run(mode, found)[: len(_STEPS)]]
        panes[mode.value] = found
    return Played(panes, watermarks)


def _run(mode: bl.Accumulation, found: list[list[tuple[str, int, bool]]]) -> list[Any]:
    stream = bl.TestStream({"points": int, "at": int})
    for step in _STEPS:
        if isinstance(step, int):
            stream = stream.advance_watermark_to(step)
        else:
            stream = stream.add_elements([{"points": points, "at": 30} for points in step])

    def take(batch: int, rows: Any) -> None:
        for row in rows.iter_rows(named=True):
            found[batch].append((row["pane_timing"], row["total"], row.get("pane_retracted", False)))

    p = bl.Pipeline("panes")
    rows = p.read("rows", stream, timestamp="at", timestamp_unit="s")
    trigger = bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))
    minutes = rows.window_into(
        bl.FixedWindows("1m"), trigger=trigger, allowed_lateness="30s", accumulation=mode
    )
    totals = minutes.aggregate(total=bl.sum("points")).named("total")
    totals.write("out", bl.Callback(lambda frame, batch: take(batch, frame)))
    return list(p.run().batches)


def draw(played: Played) -> str:
    """Returns the picture as SVG."""
    width, height = _LEFT + _ROWS + _MODE * len(MODES) + 10, _TOP + _ROW * len(_STEPS) + 8
    return picture(
        "The panes of one window, by accumulation", width, height, len(_STEPS), [*_heads(), *_batches(played)]
    )


def _heads() -> Iterator[str]:
    yield text(_LEFT + 4, 22, "rows of [0, 60)", anchor="start", weight="bold")
    for place, mode in enumerate(MODES):
        yield text(_x(place) + _MODE / 2, 22, mode.name.upper(), weight="bold")


def _x(mode: int) -> int:
    return _LEFT + _ROWS + mode * _MODE


def _batches(played: Played) -> Iterator[str]:
    for number, step in enumerate(_STEPS):
        y = _TOP + number * _ROW
        yield f'<g class="b{number}">'
        yield line(8, y - 14, _x(len(MODES)), y - 14, PALE)
        yield text(8, y + 12, f"batch {number}", anchor="start", colour=GREY)
        if isinstance(step, int):
            yield text(_LEFT + 4, y + 12, f"watermark {step}", anchor="start", colour=BLUE, weight="bold")
        else:
            yield from _rows(step, late=number > 0 and played.watermarks[number - 1] >= 60, y=y)
        for place, panes in enumerate(played.panes.values()):
            yield from _panes(panes[number], _x(place), y)
        yield "</g>"


def _rows(step: list[int], *, late: bool, y: int) -> Iterator[str]:
    for place, points in enumerate(step):
        x = _LEFT + 14 + 26 * place
        edge = VERMILION if late else SKY
        yield f'<circle cx="{x}" cy="{y + 8}" r="10" fill="{SKY}" stroke="{edge}" stroke-width="2"/>'
        yield text(x, y + 12, str(points))
    if late:
        yield text(_LEFT + 14 + 26 * len(step), y + 12, "late", anchor="start", colour=VERMILION)


def _panes(panes: list[tuple[str, int, bool]], x: int, y: int) -> Iterator[str]:
    for place, (timing, total, retracted) in enumerate(panes):
        left = x + 8 + place * (_PANE + 4)
        yield box(left, y - 3, _PANE, 22, PANE_COLOURS[timing])
        said = f"take back {total}" if retracted else f"{timing.replace('_', ' ')}: {total}"
        yield text(left + _PANE / 2, y + 12, said)
