"""Pages are where `llms.txt` lists them; links lead to pages of the site or to files on GitHub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.site.docstrings import linked, linked_once, with_example_section
from tests.docs.site.navigation import Page, pages, published, summary
from tests.docs.site.staging import converted, stage
from tests.support.places import ROOT

LLMS = (ROOT / "llms.txt").read_text()
LISTED = pages(LLMS)
PLACES = {page.source: page.place for page in LISTED}


def test_no_two_pages_have_one_place() -> None:
    assert len(set(PLACES.values())) == len(LISTED)


def test_the_navigation_has_the_sections_and_pages_of_llms_txt_in_order() -> None:
    listed = [Page("Start", "Install", "docs/install.md", ""), Page("More", "README", "README.md", "")]
    assert summary(listed) == ("- Start\n    - [Install](install.md)\n- More\n    - [README](overview.md)\n")


def test_a_page_says_what_it_is_about() -> None:
    assert [page.source for page in LISTED if len(page.summary) < 10] == []


def test_the_published_llms_txt_leads_to_the_site() -> None:
    text = published(LLMS, "https://docs/")
    assert "- [Install](https://docs/install.md): " in text
    assert "](docs/" not in text


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("docs/joins.md", "[x](sides.md#lookups)", "[x](sides.md#lookups)"),
        ("docs/joins.md", "[x](#kinds)", "[x](#kinds)"),
        ("docs/joins.md", "[x](../CONTRIBUTING.md)", "[x](contributing/guide.md)"),
        ("CONTRIBUTING.md", "[x](docs/style.md)", "[x](../style.md)"),
        ("README.md", "![x](docs/pictures/graph.svg)", "![x](pictures/graph.svg)"),
        ("docs/joins.md", "[x](../stages)", "[x](https://github.com/beamlike/beamlike/tree/main/stages)"),
        ("docs/joins.md", "[x](../LICENSE)", "[x](https://github.com/beamlike/beamlike/blob/main/LICENSE)"),
        ("docs/joins.md", "[x](https://a.b/c.md)", "[x](https://a.b/c.md)"),
        ("docs/joins.md", "```text\n[x](../nothing)\n```", "```text\n[x](../nothing)\n```"),
        ("README.md", "```python no-run\nx\n```", "```python\nx\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site_or_to_files(source: str, link: str, expected: str) -> None:
    assert converted(link, source, PLACES) == expected


def test_a_link_to_nothing_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/joins\.md has a link to nothing\.md"):
        converted("[x](nothing.md)", "docs/joins.md", PLACES)


def test_all_pages_and_pictures_are_staged(tmp_path: Path) -> None:
    (tmp_path / "old.md").touch()
    stage(LISTED, tmp_path)
    staged = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.md")}
    assert staged == {*PLACES.values(), ".summary.md"}
    assert (tmp_path / "pictures" / "graph.svg").is_file()


def test_examples_of_docstrings_are_sections() -> None:
    text = with_example_section("Does it.\n\nExample, with the `plays` of `bl.Collection`:\n    >>> plays\n")
    assert text == "Does it.\n\nExamples:\n    With the `plays` of `bl.Collection`:\n\n    >>> plays\n"
    assert with_example_section("Does it.\n\nExample:\n    >>> 1\n") == "Does it.\n\nExamples:\n    >>> 1\n"


def test_public_names_in_docstrings_are_links() -> None:
    assert (
        linked("as `bl.count` and `Kafka`") == "as [`bl.count`][beamlike.count] and [`Kafka`][beamlike.Kafka]"
    )
    assert linked("a `count`, `plays` and ``x``") == "a `count`, `plays` and ``x``"
    assert linked("    >>> 'a `Kafka`'") == "    >>> 'a `Kafka`'"


def test_a_page_links_a_public_name_once_below_each_heading() -> None:
    link = "[`bl.Kafka`][beamlike.Kafka]"
    assert linked_once("`bl.Kafka` and `bl.Kafka`\n# `bl.Kafka`\n`bl.Kafka`") == (
        f"{link} and `bl.Kafka`\n# `bl.Kafka`\n{link}"
    )
    assert linked_once("[`bl.Kafka`](kafka.md) `Kafka`") == "[`bl.Kafka`](kafka.md) `Kafka`"
