"""Links of all pages: the files and headings that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "benchmarks" / "README.md",
        ROOT / "changelog.d" / "README.md",
    ]
)

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page, as GitHub derives them from its headings."""
    found = re.findall(r"^#+ (.*)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for name, anchor in _LINK.findall(_CODE.sub("", page.read_text())):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken.append(f"{name}#{anchor}" if anchor else name)
    assert broken == []
