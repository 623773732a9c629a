"""Plots as small files that are the same for the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def figures(down: int, across: int, size: tuple[float, float], **shared: Any) -> tuple[Any, Any]:
    """Returns a figure of `down` by `across` panels, `size` in inches, and the panels in an array of two dimensions."""
    return pyplot.subplots(down, across, figsize=size, squeeze=False, **shared)


def save(figure: Any, path: Path) -> None:
    """Saves a figure as SVG, without the time."""
    figure.tight_layout()
    with matplotlib.rc_context({"svg.hashsalt": "beamlike", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
