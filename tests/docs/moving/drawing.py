"""A picture in which the batches of a run appear one after the other, by an animation without a script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from beamlike.observe.charts.figure import GREEN, ORANGE, VERMILION

PANE_COLOURS: Final = {"early": ORANGE, "on_time": GREEN, "late": VERMILION}
_SECONDS_PER_BATCH: Final = 2


def picture(title: str, width: int, height: int, batches: int, body: Iterable[str]) -> str:
    """Returns a picture as SVG. Parts of the class `b3` appear with batch 3."""
    shapes = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' font-family="sans-serif" font-size="12">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{_animation(batches)}\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>\n{shapes}\n</svg>\n'
    )


def _animation(count: int) -> str:
    """Returns a rule for each batch, which shows it from its turn on; the last turn is three times as long."""
    total = count + 2
    rules = [
        f"@keyframes b{batch} {{ 0%, {100 * batch / total:.2f}% {{ opacity: 0 }}"
        f" {100 * (batch + 0.2) / total:.2f}%, 100% {{ opacity: 1 }} }}\n"
        f".b{batch} {{ animation: b{batch} {total * _SECONDS_PER_BATCH}s infinite }}"
        for batch in range(1, count)
    ]
    return "@media screen and (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules) + "\n}"


def text(
    x: float, y: float, said: str, *, anchor: str = "middle", colour: str = "#222", weight: str = "normal"
) -> str:
    """Returns a text."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-weight="{weight}">{escape(said)}</text>'


def box(x: float, y: float, width: int, height: int, colour: str) -> str:
    """Returns a box with round corners."""
    place = f'x="{x:.0f}" y="{y:.0f}" width="{width}" height="{height}"'
    return f'<rect {place} rx="4" fill="#fff" stroke="{colour}" stroke-width="2"/>'


def line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1) -> str:
    """Returns a straight line."""
    ends = f'x1="{x:.0f}" x2="{to_x:.0f}" y1="{y:.0f}" y2="{to_y:.0f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'
