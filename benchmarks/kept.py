"""Figures in a JSON file: a run replaces the figures that it has measured and leaves the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


def load(path: Path) -> list[Figures]:
    """Reads the stored figures, in the order of their first measurement; empty if there is no file."""
    figures: list[Figures] = json.loads(path.read_text())["figures"] if path.exists() else []
    return figures


def keep(path: Path, measured: Iterable[Figures], name: Sequence[str], machine: Figures) -> list[Figures]:
    """Replaces the stored figures that have the same values for `name` by `measured`, with the time and the machine.

    Returns all stored figures.
    """
    about = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine}
    kept = {tuple(figures[part] for part in name): figures for figures in load(path)}
    kept |= {tuple(figures[part] for part in name): {**figures, **about} for figures in measured}
    path.write_text(json.dumps({"figures": list(kept.values())}, indent=1) + "\n")
    return list(kept.values())
