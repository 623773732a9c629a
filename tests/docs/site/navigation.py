"""The navigation of the site: the sections and pages that `llms.txt` lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import attrs

_ENTRY = re.compile(r"- \[(?P<title>[^\]]+)\]\((?P<source>[^)#]+)\)(?:: (?P<summary>.+))?")

_ELSEWHERE = {
    "AGENTS.md": "contributing/agents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/guide.md",
    "README.md": "overview.md",
    "SECURITY.md": "contributing/vulnerabilities.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""The places of pages that are not below docs/, on the site."""


@attrs.frozen
class Page:
    """A page of the site.

    Args:
        section: The heading in `llms.txt` that lists the page.
        title: The name of the page in the navigation.
        source: The file of the page, relative to the root of the repository.
        summary: A sentence about the page.
    """

    section: str
    title: str
    source: str
    summary: str

    @property
    def place(self) -> str:
        """The file of the page on the site."""
        return _ELSEWHERE.get(self.source) or str(PurePosixPath(self.source).relative_to("docs"))


def pages(llms: str) -> list[Page]:
    """Returns all pages, in the order of the navigation."""
    return list(_pages(llms))


def _pages(llms: str) -> Iterator[Page]:
    section = ""
    for line in llms.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif entry := _ENTRY.fullmatch(line):
            yield Page(section, entry["title"], entry["source"], entry["summary"] or "")


def summary(listed: list[Page]) -> str:
    """Returns the navigation as nested lists, in the form that `literate-nav` reads."""
    lines: list[str] = []
    for section in dict.fromkeys(page.section for page in listed):
        lines.append(f"- {section}")
        lines += [f"    - [{page.title}]({page.place})" for page in listed if page.section == section]
    return "\n".join([*lines, ""])


def published(llms: str, url: str) -> str:
    """Returns `llms.txt` as it is on the site, where its links lead to the Markdown of each page."""
    places = {page.source: f"{url}{page.place}" for page in pages(llms)}
    return re.sub(r"\]\(([^)#]+)\)", lambda link: f"]({places[link[1]]})", llms)
