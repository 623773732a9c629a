"""Puts figures into pages, between the markers of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

README = Path(__file__).with_name("README.md")
FRONT = Path(__file__).parents[1] / "README.md"
NEXMARK = FRONT.parent / "docs" / "nexmark.md"


def put(name: str, lines: Iterable[str], path: Path = README) -> None:
    """Replaces the text between `<!-- name -->` and `<!-- end of name -->`. Raises ValueError if they are not there."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = path.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{path} has no place for {name!r}: lines {begin.strip()} and {end.strip()}")
    path.write_text("".join([before, begin, "\n", *(f"{line}\n" for line in lines), "\n", end, after]))


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Returns the lines of a Markdown table; columns are numbers, except the first and those that end with a colon."""
    yield "| " + " | ".join(name.rstrip(":") for name in names) + " |"
    yield (
        "|"
        + "|".join("---" if i == 0 or name.endswith(":") else "---:" for i, name in enumerate(names))
        + "|"
    )
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def about(figures: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence on the machine and versions of the last figure, and the commits and dates of all."""
    last = max(figures, key=lambda figure: str(figure["time"]))["machine"]
    names = ("system", "python", "java", "polars", "pyspark")
    facts = ", ".join(f"{name} {last[name]}" for name in names if last.get(name))
    where = f"{last['processors']} cores of {last['processor']}"
    return f"On {'; '.join(filter(None, [where, facts, ', '.join(commits(figures))]))}."


def commits(figures: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns each commit of the figures, with the last day on which it was measured, in order of days."""
    days = dict[str, str]()
    for figure in figures:
        commit, day = str(figure["machine"]["commit"])[:7], str(figure["time"])[:10]
        days[commit] = max(day, days.get(commit, ""))
    return [f"commit {commit} on {day}" for commit, day in sorted(days.items(), key=lambda each: each[1])]
