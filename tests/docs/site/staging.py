"""The pages of the site as its generator reads them: links lead to other pages, or to files on GitHub."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from tests.docs.site.command_line import MARKER, commands
from tests.docs.site.docstrings import linked_once
from tests.docs.site.navigation import Page, summary
from tests.support.places import ROOT

REPOSITORY = "https://github.com/beamlike/beamlike"
STYLE = Path(__file__).with_name("site.css")

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_INFO = re.compile(r"^```(\w+) [\w -]+$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<file>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")


def stage(listed: list[Page], folder: Path) -> None:
    """Writes the pages, their pictures and the navigation into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    places = {page.source: page.place for page in listed}
    for page in listed:
        text = (ROOT / page.source).read_text(encoding="utf-8").replace(MARKER, commands())
        _write(folder / page.place, _front_matter(page) + converted(text, page.source, places))
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures")
    shutil.copy(STYLE, folder / STYLE.name)
    _write(folder / ".summary.md", summary(listed))


def converted(text: str, source: str, places: dict[str, str]) -> str:
    """Returns the text of a page for the site.

    Args:
        text: The Markdown of the page.
        source: The file of the page, relative to the root of the repository.
        places: The files of all pages on the site, by their sources.
    """
    link = _link_of(source, places)
    parts = _FENCED.split(text)
    return "".join(
        _INFO.sub(r"```\1", part) if part.startswith("```") else _LINK.sub(link, linked_once(part))
        for part in parts
    )


def _link_of(source: str, places: dict[str, str]) -> Callable[[re.Match[str]], str]:
    here = PurePosixPath(places[source]).parent

    def link(found: re.Match[str]) -> str:
        anchor = found["anchor"] or ""
        if not found["file"]:
            return f"]({anchor})"
        target = os.path.normpath(PurePosixPath(source).parent / found["file"])
        if target in places:
            return f"]({os.path.relpath(places[target], here)}{anchor})"
        if target.startswith("docs/pictures/"):
            return f"]({os.path.relpath(target.removeprefix('docs/'), here)})"
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{source} has a link to {found['file']}, which does not exist")
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target}{anchor})"

    return link


def _front_matter(page: Page) -> str:
    """Returns the title and the description that search engines show."""
    described = f"{page.title}: {page.summary}" if page.summary else page.title
    return f'---\ndescription: "{described.replace(chr(34), chr(39))}"\n---\n\n'


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
