"""HTML for notebooks. Text from outside this package is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape


def page(title: str, *parts: str) -> str:
    """Returns a title, followed by parts that are HTML already."""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of text. Its header is left out if all names are empty."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads) if any(heads) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head and f'<thead><tr>{head}</tr></thead>'}<tbody>{body}</tbody></table>"


def bullets(lines: Iterable[str]) -> Iterator[str]:
    """Yields a bulleted list of lines, or nothing if there are no lines."""
    if items := "".join(f"<li>{escape(line)}</li>" for line in lines):
        yield f"<ul>{items}</ul>"
