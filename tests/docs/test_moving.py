"""The picture of docs/concepts.md shows the run of that page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.docs.moving import PICTURE, Played, draw, play

TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def played() -> Played:
    return play()


def test_the_picture_is_that_of_the_run(played: Played) -> None:
    assert draw(played) == PICTURE.read_text(), "python -m tests.docs.moving draws it"


def test_every_row_and_pane_is_in_the_picture(played: Played) -> None:
    texts = [element.text for element in ElementTree.fromstring(draw(played)).iter(TEXT)]
    totals = [f"{pane['pane_timing'].replace('_', ' ')}: {pane['total']}" for _, pane in played.panes]
    assert [text for text in texts if text in totals] == totals
    points = [str(row["points"]) for rows in played.elements for row in rows]
    assert [text for text in texts if text and text.isdigit()] == points
    assert texts.count("dropped") == len(played.dropped) == 1
