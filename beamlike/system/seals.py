"""Checksums of small data: as an entry of a JSON object, or as a header before bytes.

To seal data is to add their checksum; to unseal data is to compare and remove it. Data that an earlier version stored
without a checksum are returned unchecked. If one flipped bit hides the checksum, it has changed nothing else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

SUM: Final = "crc32"
"""The name of the entry with the checksum."""

LINES: Final = "lines"
"""The name of the entry with the number of lines."""

_HEAD: Final = b"crc32"


class NotAsWritten(ValueError):
    """Raised if data do not have the content that was stored."""

    def __init__(self, what: str = "it", reason: str = "its checksum is another one") -> None:
        super().__init__(f"{what} is not what was written: {reason}")


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a JSON object with the checksum of its entries as the last entry."""
    # Converted, so that keys have the same order as when they are read back.
    plain = json.loads(json.dumps(facts))
    return {**plain, SUM: _sum(plain)}


def unsealed(facts: Any, what: str = "it") -> Any:
    """Returns a JSON object without its checksum. An object without a checksum is returned unchanged.

    Raises `NotAsWritten`, which calls the object `what`, if the checksum is wrong.
    """
    if not isinstance(facts, dict) or SUM not in facts:
        return facts
    rest = {name: fact for name, fact in facts.items() if name != SUM}
    if facts[SUM] != _sum(rest):
        raise NotAsWritten(what)
    return rest


def unsealed_json(line: bytes | str, what: str = "it") -> Any:
    """Parses a line of JSON, and returns the object without its checksum.

    Raises `NotAsWritten`, which calls the line `what`, if it is no JSON, or the checksum is wrong.
    """
    try:
        facts = json.loads(line)
    except ValueError:  # also for bytes that are not UTF-8
        raise NotAsWritten(what, "it is not JSON") from None
    return unsealed(facts, what)


def sealed_lines(entries: Iterable[Any]) -> str:
    """Returns a line of JSON for each entry, with its checksum and the number of all lines, so that a missing line is
    detected.
    """
    facts = [*entries]
    return "".join(f"{json.dumps(sealed({**one, LINES: len(facts)}))}\n" for one in facts)


def unsealed_lines(text: str) -> list[Any]:
    """Parses the result of `sealed_lines`. Raises `NotAsWritten` if a line is damaged or missing."""
    found = [unsealed_json(line) for line in text.splitlines()]
    if any(isinstance(one, dict) and one.get(LINES, len(found)) != len(found) for one in found):
        raise NotAsWritten
    return found


def _sum(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, separators=(",", ":"), sort_keys=True).encode())


def sealed_bytes(content: bytes) -> bytes:
    """Returns the content with a checksum before it."""
    return _HEAD + zlib.crc32(content).to_bytes(4, "big") + content


def unsealed_bytes(content: bytes, *, older: bytes | None = None) -> bytes:
    """Returns the result of `sealed_bytes` without its header. Content that begins with `older` has no checksum, and is
    returned unchanged.

    Raises `NotAsWritten` if the checksum is missing or wrong.
    """
    if older is not None and content.startswith(older):
        return content
    body = len(_HEAD) + 4
    total = int.from_bytes(content[len(_HEAD) : body], "big")
    if not content.startswith(_HEAD) or len(content) < body or zlib.crc32(content[body:]) != total:
        raise NotAsWritten
    return content[body:]
