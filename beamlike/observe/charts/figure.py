"""The style of all pictures: colours that the colour-blind can distinguish, and reproducible SVG."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, Final

try:
    import matplotlib
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pictures and reports need matplotlib: pip install 'beamlike[report]'", name=error.name
    ) from None

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

# Okabe and Ito's colours, with their own yellow left out: it cannot be seen on white.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
RUST: Final = "#A84A00"  # vermilion, dark enough for small letters
GREY: Final = "#767676"
PALE: Final = "#DDDDDD"

LINES: Final = (
    (BLUE, "-"),
    (VERMILION, "--"),
    (GREEN, "-."),
    (PURPLE, (0, (5, 1, 1, 1, 1, 1))),
    (ORANGE, (0, (1, 1))),
    (BLACK, (0, (6, 2))),
)
"""Colour and dashes of lines that stand beside each other: told apart by either."""

TEXT_POINTS: Final = 8.0

_DOTS_PER_INCH = 160
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelsize": TEXT_POINTS,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": TEXT_POINTS + 1,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": TEXT_POINTS,
    "grid.color": PALE,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.fontsize": TEXT_POINTS,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "path.simplify": True,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "xtick.color": GREY,
    "xtick.labelcolor": "black",
    "xtick.labelsize": TEXT_POINTS - 1,
    "ytick.color": GREY,
    "ytick.labelcolor": "black",
    "ytick.labelsize": TEXT_POINTS - 1,
}


class Picture(Figure):
    """A matplotlib figure that notebooks show, without global state of matplotlib."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout=None)
        FigureCanvasAgg(self)

    def svg(self, salt: str = "beamlike") -> str:
        """The figure as an `<svg>` element: equal figures have equal text. Ids begin with the salt."""
        out = StringIO()
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": salt}), _any_letters():
            self.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        text = out.getvalue()
        return _with_own_ids(_METADATA.sub("", text[text.index("<svg") :]), salt)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the figure in the format of the path's suffix, such as `.svg` or `.png`."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".svg":
            target.write_text(self.svg(), encoding="utf-8")
            return
        with style(), _any_letters():
            self.savefig(target, dpi=_DOTS_PER_INCH)

    def _repr_svg_(self) -> str:
        return self.svg()


def style() -> Any:
    """The matplotlib context for all drawing."""
    return matplotlib.rc_context(_STYLE)


@lru_cache(maxsize=4_096)
def text_width(text: str, *, points: float = TEXT_POINTS, bold: bool = False) -> float:
    """The width of a line of text in inches."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=points)
    with _any_letters():
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def shown(text: str, letters: int) -> str:
    """The text in one line, at most `letters` long, without unprintable characters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= letters else f"{line[: letters - 1]}…"


def plain_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Creates axes at (left, bottom, width, height) in inches."""
    width, height = figure.get_size_inches()
    left, bottom, wide, high = box
    return figure.add_axes((left / width, bottom / height, wide / width, high / height))


@contextmanager
def _any_letters() -> Iterator[None]:
    """Ignores missing glyphs: this machine's font may lack letters that the reader's has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _with_own_ids(svg: str, salt: str) -> str:
    """Prefixes all ids, as several pictures of a page must not share them."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", salt)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
