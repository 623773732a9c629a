"""Puts figures into README.md, between the markers of their table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

README = Path(__file__).with_name("README.md")


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


def on(machines: Iterable[dict[str, object]]) -> str:
    """Returns a sentence on the machine and versions of the figures; the last ones if there are several."""
    about = list(machines)[-1]
    shown = {name: about[name] for name in ("processor", "system", "python", "java", "polars", "pyspark")}
    facts = ", ".join(f"{name} {value}" for name, value in shown.items() if value and name != "processor")
    return (
        f"On {about['processors']} cores of {about['processor']}; {facts}; commit {str(about['commit'])[:7]}."
    )
