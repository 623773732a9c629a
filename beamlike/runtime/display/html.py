"""HTML for notebooks. Text from outside this package is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape


def page(title: str, *parts: str) -> str:
    """Parts, which are HTML already, below a title."""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text below its heads. Heads that are all empty are left out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads) if any(heads) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head and f'<thead><tr>{head}</tr></thead>'}<tbody>{body}</tbody></table>"


def bullets(lines: Iterable[str]) -> Iterator[str]:
    """A list of lines; nothing if there are none."""
    if items := "".join(f"<li>{escape(line)}</li>" for line in lines):
        yield f"<ul>{items}</ul>"
