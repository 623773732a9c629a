"""The reference entries of public names, by the names that docs and docstrings use."""

from __future__ import annotations

import re
from functools import cache

from tests.support.places import ROOT

REFERENCE = ROOT / "docs" / "reference"

_DIRECTIVE = re.compile(r"^::: (?P<path>\S+)$(?P<options>(?:\n    .*)*)", re.MULTILINE)
_MEMBERS = re.compile(r"members: \[(.*)\]")


@cache
def entries() -> dict[str, tuple[str, ...]]:
    """Returns the paths of all entries, with the names of the methods that each one shows."""
    texts = [page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md"))]
    found = [entry for text in texts for entry in _DIRECTIVE.finditer(text)]
    paths = [entry["path"] for entry in found]
    assert len(paths) == len(set(paths)), "a name has two entries"
    return {entry["path"]: _members(entry["options"]) for entry in found}


def _members(options: str) -> tuple[str, ...]:
    listed = _MEMBERS.search(options)
    return tuple(listed[1].split(", ")) if listed else ()


@cache
def paths_by_name() -> dict[str, str]:
    """Returns the path of each entry by its name in code: `bl.Kafka`, `Kafka` and `Collection.write`.

    Names of functions need their `bl.`, because many of them are ordinary words.
    """
    named: dict[str, str] = {}
    for path, members in entries().items():
        name = path.rpartition(".")[2]
        public = path.removeprefix("beamlike.")
        named[f"bl.{public}"] = path
        if name[0].isupper() and public.count(".") == 0:
            named[name] = path
        for member in members:
            named[f"{name}.{member}"] = named[f"bl.{name}.{member}"] = f"{path}.{member}"
    return named
