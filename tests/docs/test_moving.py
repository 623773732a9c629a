"""The animated pictures show real runs."""

from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

import pytest

import beamlike as bl
from tests.docs.moving import bounds, concepts, panes, splits, windows
from tests.docs.moving.concepts import Played, draw, play

TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def played() -> Played:
    return play()


@pytest.mark.parametrize("figure", [concepts, panes, splits, windows])
def test_a_picture_is_that_of_its_run(figure: ModuleType) -> None:
    assert figure.draw(figure.play()) == figure.PICTURE.read_text(), "python -m tests.docs.moving draws it"


def test_every_way_of_windows_has_all_rows_of_the_picture() -> None:
    fixed, sliding, sessions = windows.play().values()
    assert {name: len(one) for name, one in windows.play().items()} == dict.fromkeys(windows.WAYS, 3)
    last = {(one.start, one.end): one.rows for batch in fixed for one in batch}
    assert sum(last.values()) == 5
    assert sum({(one.start, one.end): one.rows for batch in sliding for one in batch}.values()) == 10
    assert [(one.start, one.end, one.rows) for one in sessions[1]] == [
        (10, 120, 3)
    ]  # two sessions have merged


def test_the_picture_of_bounds_has_those_of_the_page() -> None:
    drawn = {element.text for element in ElementTree.parse(bounds.PICTURE).iter(TEXT)}
    assert {"45s", "1m19s", "bound"} <= drawn
    assert "45s" in str(bounds.play())


def test_the_modes_of_accumulation_end_at_the_same_total() -> None:
    played = panes.play()
    discarding, accumulating, retracting = (
        [pane for batch in played.panes[mode.value] for pane in batch] for mode in panes.MODES
    )
    assert bl.RETRACTING is panes.MODES[2]
    assert sum(total for _, total, _ in discarding) == accumulating[-1][1] == 16
    assert sum(-total if retracted else total for _, total, retracted in retracting) == 16


def test_the_source_waits_for_the_silent_partition_until_it_is_idle() -> None:
    played = splits.play()
    assert [min(one.values()) for one in played.splits[:3]] == played.source[:3]
    assert played.source[3] == played.splits[3]["p0"] > played.splits[3]["p1"]


def test_every_row_and_pane_is_in_the_picture(played: Played) -> None:
    texts = [element.text for element in ElementTree.fromstring(draw(played)).iter(TEXT)]
    totals = [f"{pane['pane_timing'].replace('_', ' ')}: {pane['total']}" for _, pane in played.panes]
    assert [text for text in texts if text in totals] == totals
    points = [str(row["points"]) for rows in played.elements for row in rows]
    assert [text for text in texts if text and text.isdigit()] == points
    assert texts.count("dropped") == len(played.dropped) == 1
