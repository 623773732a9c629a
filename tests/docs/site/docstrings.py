"""Docstrings, and prose of pages, in the form of the site: examples are sections, and public names are links."""

from __future__ import annotations

import re

from tests.docs.site.public_paths import paths_by_name

_EXAMPLE = re.compile(r"^Example(?P<with>, with[^:]*)?:$", re.MULTILINE)
_NAME = re.compile(r"(?<![\[`])`(?P<name>[A-Za-z_.]+)(?:\([^`]*\))?`(?![`\]])")


def with_example_section(text: str) -> str:
    """Returns a docstring whose example is a section in the form that griffe reads."""
    found = _EXAMPLE.search(text)
    if not found:
        return text
    before, after = text[: found.start()], text[found.end() :]
    intro = f"\n    With{found['with'].removeprefix(', with')}:\n" if found["with"] else ""
    return f"{before}Examples:{intro}{after}"


def linked(text: str) -> str:
    """Returns a docstring in which public names in backquotes are references to their entries."""
    return _linked(text, "")


def linked_once(text: str) -> str:
    """Returns the prose of a page in which the first mention of a public name below each heading is a reference."""
    sections = re.split(r"^(?=#)", text, flags=re.MULTILINE)
    return "".join(_linked(section, "bl.", once=True) for section in sections)


def _linked(text: str, prefix: str, *, once: bool = False) -> str:
    seen: set[str] = set()

    def reference(found: re.Match[str]) -> str:
        name = found["name"]
        path = paths_by_name().get(name) if name.startswith(prefix) else None
        if not path or (once and path in seen):
            return found[0]
        seen.add(path)
        return f"[{found[0]}][{path}]"

    return "\n".join(line if _is_verbatim(line) else _NAME.sub(reference, line) for line in text.split("\n"))


def _is_verbatim(line: str) -> bool:
    """True for a line of code or output, and for a heading."""
    return line.lstrip().startswith((">>>", "...", "#"))
