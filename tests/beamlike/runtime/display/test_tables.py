"""Tables for the terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from beamlike.records.model import BatchRecord, StageRecord
from beamlike.runtime.display.tables import watermarks_table
from stages.state.index import HoldOwner
from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME

MINUTE = 60_000_000
KEY = "2025-03-04T05:06:07Z"


def lines(table: Table) -> list[str]:
    """Returns the lines that are not empty, with one space between words."""
    file = io.StringIO()
    Console(file=file, width=220, color_system=None).print(table)
    text = file.getvalue().replace("│", " ")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def shown(stages: Mapping[str, StageRecord]) -> str:
    return "\n".join(lines(watermarks_table([BatchRecord(0, 0, {}, stages)])))


def held(window: HoldOwner, output: int = MINUTE) -> StageRecord:
    return StageRecord(2 * MINUTE, output, str(window), window=window)


def test_a_key_that_looks_like_a_time_stays_as_it_is() -> None:
    text = shown({"sessions": held(HoldOwner(MINUTE, KEY, 500_000, 3 * MINUTE))})
    assert f"key {KEY} in [00:00:00, 00:03:00)" in text
    days = shown(
        {"one": held(HoldOwner(MINUTE, KEY, 0, 3 * MINUTE)), "two": held(HoldOwner(DAY, "a", 0, DAY), DAY)}
    )
    assert f"key {KEY} in [1970-01-01 00:00:00, 1970-01-01 00:03:00)" in days


def test_the_bounds_of_the_global_window_are_the_ends_of_time() -> None:
    window = HoldOwner(MINUTE, "", MIN_TIME, GLOBAL_WINDOW_END, pane=True)
    assert "a pane that may be retracted, of window [-inf, +inf)" in shown({"all": held(window)})


def test_who_holds_upstream_is_named_whatever_the_name() -> None:
    assert f"1m {KEY}" in shown({"sessions": StageRecord(2 * MINUTE, MINUTE, KEY)})
