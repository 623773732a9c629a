"""The pictures of docs/notebook.md exist and are those of its code."""

from __future__ import annotations

import re

from tests.docs.notebooks import PANES, RUN, panes


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_panes_are_those_of_the_page() -> None:
    assert texts(panes().svg()) == texts(PANES.read_text()), "make notebooks draws them"


def test_the_picture_of_a_run_is_a_small_file() -> None:
    assert RUN.stat().st_size < 100_000
