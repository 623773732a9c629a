"""HTML for notebooks. Text from outside this package is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from beamlike.system.printable import printable


def html_text(text: str) -> str:
    r"""Returns text for an element or an attribute, with control characters and direction marks as escapes.

    >>> html_text("<b> \x1b")
    '&lt;b&gt; \\\\x1b'
    """
    return escape(printable(text, keep="\n\t"))


def page(title: str, *parts: str) -> str:
    """Returns a title, followed by parts that are HTML already."""
    return f"<div><p><strong>{html_text(title)}</strong></p>{''.join(parts)}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of text. Its header is left out if all names are empty."""
    head = "".join(f"<th>{html_text(name)}</th>" for name in heads) if any(heads) else ""
    body = "".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head and f'<thead><tr>{head}</tr></thead>'}<tbody>{body}</tbody></table>"


def bullets(lines: Iterable[str]) -> Iterator[str]:
    """Yields a bulleted list of lines, or nothing if there are no lines."""
    if items := "".join(f"<li>{html_text(line)}</li>" for line in lines):
        yield f"<ul>{items}</ul>"
