"""Recognizes files with a JSON array where JSON lines are expected, and has the advice for the user."""

from __future__ import annotations

import json
from typing import Final

ADVICE: Final = (
    "it is a JSON array, where an object per line is expected, without brackets around them and commas between them; "
    "pl.read_json(file).write_ndjson(other) or `jq -c .[]` makes such a file"
)


def has_part(line: bytes) -> bool:
    """True for a line that looks like a part of an array: a lone bracket, or an object next to a comma or bracket."""
    if line.strip() in (b"[", b"]"):
        return True
    inner = line.strip().removeprefix(b"[").removesuffix(b"]").strip().removesuffix(b",")
    if inner == line.strip():
        return False
    try:
        return isinstance(json.loads(inner), dict)
    except (ValueError, RecursionError):
        return False


def begins(block: bytes) -> bool:
    """True if the text begins with a JSON array."""
    return block.lstrip().startswith(b"[")
