"""The windows of five rows for each way to assign windows; sessions grow and merge as rows arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import polars as pl

import beamlike as bl
from beamlike.observe.charts.figure import BLUE, GREEN, GREY, ORANGE, PALE, SKY
from tests.docs.moving.drawing import line, picture, text
from tests.support.places import ROOT

PICTURE: Final = ROOT / "docs" / "pictures" / "windows.svg"
WAYS: Final[dict[str, bl.WindowFn]] = {
    'FixedWindows("1m")': bl.FixedWindows("1m"),
    'SlidingWindows("1m", "30s")': bl.SlidingWindows("1m", "30s"),
    'Sessions("40s")': bl.Sessions("40s"),
}

_LEFT, _TOP, _WIDE, _SECONDS, _LANE = 190, 64, 3, 180, 18
_BATCHES: Final = ([10, 80, 130], [45], [60])
_COLOURS: Final = (BLUE, GREEN, ORANGE)


@attrs.frozen
class Window:
    """A window after a batch: its bounds (s), and the number of its rows."""

    start: int
    end: int
    rows: int


def play() -> dict[str, list[list[Window]]]:
    """Returns, for each way, the windows that each batch has changed."""
    return {name: _changed(windows) for name, windows in WAYS.items()}


def _changed(windows: bl.WindowFn) -> list[list[Window]]:
    stream = bl.TestStream({"at": int})
    for batch in _BATCHES:
        stream = stream.add_elements([{"at": at} for at in batch])
    found: list[list[Window]] = [[] for _ in _BATCHES]

    def take(frame: pl.DataFrame, batch: int) -> None:
        if batch >= len(_BATCHES):  # the end of input closes all windows
            return
        for row in frame.sort("window_start").iter_rows(named=True):
            bounds = (round(row[bound].timestamp()) for bound in ("window_start", "window_end"))
            found[batch].append(Window(*bounds, row["n"]))

    p = bl.Pipeline("windows")
    trigger = bl.Repeatedly(bl.AfterCount(1))
    rows = p.read("rows", stream, timestamp="at", timestamp_unit="s")
    placed = rows.window_into(windows, trigger=trigger, accumulation=bl.ACCUMULATING)
    placed.aggregate(n=bl.count()).write("out", bl.Callback(take))
    p.run()
    return found


def draw(played: dict[str, list[list[Window]]]) -> str:
    """Returns the picture as SVG."""
    parts = [*_rows()]
    y = _TOP
    for name, batches in played.items():
        parts += [text(8, y + 14, name, anchor="start", weight="bold")]
        for number, windows in enumerate(batches):
            parts += [f'<g class="b{number}">', *_bars(windows, y, number), "</g>"]
            y += _LANE * _lanes(windows)
        parts.append(line(8, y + 6, _x(_SECONDS), y + 6, PALE))
        y += 18
    width, height = _x(_SECONDS) + 20, y
    return picture(
        "Fixed windows, sliding windows and sessions of the same rows", width, height, len(_BATCHES), parts
    )


def _x(seconds: int) -> int:
    return _LEFT + _WIDE * seconds


def _rows() -> Iterator[str]:
    yield text(8, 20, "event time, in seconds", anchor="start", colour=GREY)
    for seconds in range(0, _SECONDS + 1, 30):
        yield text(_x(seconds), 20, str(seconds), colour=GREY)
    yield text(8, 46, "rows, by batch", anchor="start", colour=GREY)
    for number, batch in enumerate(_BATCHES):
        yield f'<g class="b{number}">'
        for at in batch:
            yield f'<circle cx="{_x(at)}" cy="42" r="9" fill="{SKY}"/>'
            yield text(_x(at), 46, str(number))
        yield "</g>"


def _lanes(windows: list[Window]) -> int:
    """Returns the number of lanes in which windows can be drawn without overlap."""
    return 1 + max((_lane(windows, one) for one in windows), default=0)


def _lane(windows: list[Window], window: Window) -> int:
    overlapping = [one for one in windows if one.start < window.start < one.end]
    return (1 + _lane(windows, overlapping[-1])) % 2 if overlapping else 0


def _bars(windows: list[Window], y: int, number: int) -> Iterator[str]:
    for window in windows:
        top = y + _LANE * _lane(windows, window)
        start, end = max(_x(window.start), _LEFT - 8), min(_x(window.end), _x(_SECONDS) + 8)
        place = f'x="{start}" y="{top}" width="{end - start}" height="{_LANE - 3}"'
        yield f'<rect {place} rx="4" fill="{_COLOURS[number]}" fill-opacity="0.25" stroke="{_COLOURS[number]}"/>'
        yield text((start + end) / 2, top + 12, f"{window.rows} row{'s' * (window.rows != 1)}")
