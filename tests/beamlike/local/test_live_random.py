"""For any batches, and any stop, failure or abort of runs, the rows are those of a single run."""

from __future__ import annotations

import threading
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.records.model import BatchRecord
from tests.support.examples import share
from tests.support.ongoing import SCHEMA, memories, ongoing, rows_of

Fate = Literal["goes on", "stops", "fails", "is given up"]

rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 240), st.integers(0, 9)), min_size=1, max_size=12
)
fates = st.lists(st.sampled_from(["goes on", "stops", "fails", "is given up"]), max_size=8)


def source(given: list[tuple[str, int, int]], size: int | None = None) -> bl.Rows:
    """Returns the rows as a source, in order of time."""
    dicts = [
        dict(zip(SCHEMA, (user, at, n), strict=True)) for user, at, n in sorted(given, key=lambda row: row[1])
    ]
    return bl.Rows(dicts, SCHEMA, rows_per_batch=size)


class Failed(Exception):
    """Raised to make a run fail."""


@share(3)
@given(clicks=rows, views=rows, sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)), planned=fates)
def test_the_rows_are_those_of_a_run_at_once(
    clicks: list[Any], views: list[Any], sizes: tuple[int, int], planned: list[Fate]
) -> None:
    expected, sinks, left = memories(), memories(), list(planned)
    ongoing(source(clicks), source(views), expected).run()

    known = threading.Event()

    def on_batch(record: BatchRecord) -> None:
        known.wait()
        match left.pop(0) if left else "goes on":
            case "stops":
                run.stop()
            case "fails":
                raise Failed
            case "is given up":
                run.stop(now=True)

    with TemporaryDirectory() as folder:
        runner = bl.LocalRunner(checkpoint=f"{folder}/checkpoint", drain=True, on_batch=on_batch)
        while True:
            p = ongoing(source(clicks, sizes[0]), source(views, sizes[1]), sinks)
            known.clear()
            try:
                run = runner.start(p.plan())
                known.set()
                run.wait()
            except Failed:
                continue
            except bl.CheckpointError as error:
                assert "was drained" in str(error)  # noqa: PT017
                break
        with pytest.raises(bl.CheckpointError, match="was drained"):
            runner.run(p.plan())
    assert rows_of(sinks) == rows_of(expected)
