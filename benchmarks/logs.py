"""The reason for a failure, found in a log."""

from __future__ import annotations

import re

_ERROR = re.compile(r"(Caused by: )?[\w.]*(Error|Exception)\b|\[?ERROR\]?", re.IGNORECASE)


def reason(text: str) -> str:
    """Returns the last line of a log that names an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["nothing"])[-1]
