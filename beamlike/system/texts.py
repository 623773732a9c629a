"""Writes text from data and names into code and other languages: one function for each target.

Others are `system.html.html_text`, `system.path_names.file_name`, `system.printable` for terminals and logs,
`rows.type_text.dtype_as_python`, `io.files.hive.folder`, and SQLAlchemy for its databases.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from shlex import quote as shell_word
from typing import Any, Final
from unicodedata import normalize
from zoneinfo import ZoneInfo

from beamlike.system.printable import printable

__all__ = [
    "is_python_name",
    "label_value",
    "python_argument",
    "python_comment",
    "python_docstring",
    "python_names",
    "python_value",
    "quoted",
    "shell_word",
    "sql_name",
]

_PLAIN: Final = (
    type(None), bool, int, float, str, bytes, date, datetime, time, timedelta, timezone, ZoneInfo, Decimal,
)  # fmt: skip
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    r"""Returns the text in double quotes, with escapes that Python, YAML, TOML and PromQL have in common.

    >>> print(quoted('a "b"\u2028{{c}}'))
    "a \"b\"\u2028{{c}}"
    """
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def python_value(value: Any) -> str:
    """Returns a value of a row as a literal of Python, or as a call of the constructor of a time or decimal.

    Raises `TypeError` for objects of other types, whose `repr` may be anything.
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{python_value(key)}: {python_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(python_value, value))}]"
    zone = getattr(value, "tzinfo", None)
    if type(value) in _PLAIN and type(zone) in _PLAIN:
        return repr(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as Python code")


def python_comment(text: str) -> str:
    """Returns a comment of Python in one line."""
    return f"# {printable(text)}"


def python_docstring(text: str) -> str:
    """Returns a docstring in one line."""
    return f'""{quoted(text)}""'


def is_python_name(text: str) -> bool:
    """True for a name that Python reads as itself. Python reads names in the normal form NFKC."""
    return text.isidentifier() and not keyword.iskeyword(text) and normalize("NFKC", text) == text


def python_names(texts: Iterable[str], used: Iterable[str], other: str) -> dict[str, str]:
    """Returns a variable for each text: the text itself if it is a free name, or `other` with a number."""
    taken, found = {*used}, dict[str, str]()
    for text in texts:
        name, numbers = text, count(1)
        while not is_python_name(name) or name in taken:
            name = f"{other}_{next(numbers)}"
        taken.add(name)
        found[text] = name
    return found


def python_argument(name: str, value: str) -> str:
    """Returns an argument of a call by its name. `value` is code."""
    return f"{name}={value}" if is_python_name(name) else f"**{{{quoted(name)}: {value}}}"


def sql_name(name: str) -> str:
    """Returns a name in quotes, as standard SQL reads it."""
    return '"' + name.replace('"', '""') + '"'


def label_value(text: str) -> str:
    """Returns the value of a label of a metric, which must be encodable: halves of surrogate pairs are escaped."""
    return _SURROGATES.sub(lambda found: printable(found[0]), text)
