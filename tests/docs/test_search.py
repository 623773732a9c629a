"""The words that a user of another system searches for are on the pages, with a link to what they are called here."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
WORDS = re.findall(r"^\| ([\w ,]+) \| (.+) \|$", GLOSSARY.split("## Words of other systems")[1], re.M)


@pytest.mark.parametrize(
    "word", ["stop", "retry", "union", "ordering", "backpressure", "postgres", "upsert", "offset"]
)
def test_a_word_of_another_system_leads_to_a_page(word: str) -> None:
    (entry,) = [text for words, text in WORDS if word in words.split(", ")]
    assert "](" in entry


@pytest.mark.parametrize(("words", "text"), WORDS[1:])
def test_a_word_of_another_system_is_explained_in_a_sentence(words: str, text: str) -> None:
    assert words == words.strip()
    assert text.endswith(".")
