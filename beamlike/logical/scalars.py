"""Plain scalars of YAML 1.2: text without quotes that is a number, true, false, null, or text."""

from __future__ import annotations

import math
import re
from typing import Any, Final

NUMBER: Final = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_WORDS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False, ".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan,
}  # fmt: skip


def plain_scalar(text: str) -> Any:
    """Returns the value of a plain scalar. `on`, `yes` and dates are text, which they were not in YAML 1.1."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text
