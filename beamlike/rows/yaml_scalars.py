"""The values of YAML's plain scalars, those without quotes, for the reader and the writer of pipeline files."""

from __future__ import annotations

import re
from typing import Any, Final

_NUMBERS: Final = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)
_WORDS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MOST_DIGITS: Final = 4000
"""The greatest length of a number. Python refuses to convert integers of more digits."""


def scalar(text: str) -> Any:
    """Returns the value of a plain scalar as YAML 1.2 has it: `on`, `yes` and dates are text."""
    if text in _WORDS:
        return _WORDS[text]
    for pattern, kind in _NUMBERS:
        if len(text) <= _MOST_DIGITS and pattern.fullmatch(text):
            return kind(text)
    return text
