"""The style of all pictures: colours that colour-blind people can distinguish, and reproducible SVG."""

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

from beamlike.errors import missing_package

try:
    import matplotlib
except ModuleNotFoundError as error:
    raise missing_package("pictures and reports need matplotlib", "report", error) from None

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

# The colours of Okabe and Ito, without their yellow, which is hard to see on white.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
RUST: Final = "#A84A00"  # vermilion, dark enough for small text
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
"""Colours and dashes for lines that are drawn together. Lines can be distinguished by either."""

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
    """A matplotlib figure that notebooks show. It does not use matplotlib's global state."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout=None)
        FigureCanvasAgg(self)

    def svg(self, salt: str = "beamlike") -> str:
        """Returns the figure as an `<svg>` element. Equal figures have equal text. All ids begin with `salt`."""
        out = StringIO()
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": salt}), _any_glyphs():
            self.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        text = out.getvalue()
        return _with_own_ids(_METADATA.sub("", text[text.index("<svg") :]), salt)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the figure. The suffix of the path, such as `.svg` or `.png`, selects the format."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".svg":
            target.write_text(self.svg(), encoding="utf-8")
            return
        with style(), _any_glyphs():
            self.savefig(target, dpi=_DOTS_PER_INCH)

    def _repr_svg_(self) -> str:
        return self.svg()


def style() -> Any:
    """Returns the matplotlib context in which everything is drawn."""
    return matplotlib.rc_context(_STYLE)


@lru_cache(maxsize=4_096)
def text_width(text: str, *, points: float = TEXT_POINTS, bold: bool = False) -> float:
    """Returns the width of a line of text in inches."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=points)
    with _any_glyphs():
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def shown(text: str, length: int) -> str:
    """Returns the text as one line of at most `length` characters. Unprintable characters become blanks."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= length else f"{line[: length - 1]}…"


def plain_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Creates axes at (left, bottom, width, height), in inches."""
    width, height = figure.get_size_inches()
    left, bottom, wide, high = box
    return figure.add_axes((left / width, bottom / height, wide / width, high / height))


@contextmanager
def _any_glyphs() -> Iterator[None]:
    """Suppresses warnings about missing glyphs: the reader's font may have letters that this machine's font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _with_own_ids(svg: str, salt: str) -> str:
    """Adds a prefix to all ids, because several pictures on a page must not have the same ids."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", salt)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
