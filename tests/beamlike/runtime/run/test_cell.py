"""The notebook cell of a run: the updates that it shows."""

from __future__ import annotations

from xml.etree import ElementTree

from beamlike.records.model import BatchRecord, SourceRecord
from beamlike.runtime.run.cell import Cell

SECOND = 1_000_000


def batch(number: int) -> BatchRecord:
    return BatchRecord(number, 0, {"<b>": SourceRecord(number * SECOND, elements=2)}, {}, sinks={"out": 1})


def shown(*times: float, live: bool = False) -> list[str]:
    """Returns the text of each update of a cell with a batch at each of these times, which is then closed."""
    texts: list[str] = []
    clock = iter(times)
    cell = Cell("starting", lambda one: texts.append(one._repr_html_()), live=live, clock=lambda: next(clock))
    for number in range(len(times)):
        cell.update(f"batch {number} of <b>", batch(number))
    cell.close()
    cell.close()
    return texts


def cells(page: str) -> list[str]:
    return list(ElementTree.fromstring(page).itertext())


def test_a_run_with_an_end_shows_few_updates_and_its_last_batch() -> None:
    first, later, last = shown(0.0, 0.01, 0.3, 0.31)
    assert cells(first)[0] == "batch 0 of <b>"
    assert cells(later)[0] == "batch 2 of <b>"
    assert cells(last)[0] == "batch 3 of <b>"


def test_counts_are_those_of_all_batches_and_watermarks_those_of_the_last() -> None:
    texts = cells(shown(0.0, 0.01, 0.02)[-1])
    at = texts.index("<b>")
    assert texts[at : at + 3] == ["<b>", "6", "00:00:02"]
    assert texts[-2:] == ["out", "3"]


def test_tables_are_open_until_the_run_is_over() -> None:
    first, last = shown(0.0)
    assert first.startswith('<details open="">')
    assert last.startswith("<details>")


def test_a_live_run_shows_each_batch_as_none_may_follow() -> None:
    assert len(shown(0.0, 0.01, 0.02, live=True)) == 4


def test_a_run_that_fails_shows_why() -> None:
    texts: list[str] = []
    cell = Cell("batch 3", lambda one: texts.append(one._repr_html_()))
    cell.update("batch 4", batch(4))
    cell.close("ValueError: <i> is no number")
    cell.close()
    assert cells(texts[-1])[0] == "batch 4; failed: ValueError: <i> is no number"
    assert texts[-1].startswith("<details>")


def test_a_failure_is_shown_that_is_known_only_after_the_end() -> None:
    texts: list[str] = []
    cell = Cell("batch 4", lambda one: texts.append(one._repr_html_()))
    cell.close()
    cell.close("ValueError: it")
    assert [*map(cells, texts)] == [["batch 4"], ["batch 4; failed: ValueError: it"]]
