"""Checksums of small data: as a fact of a JSON object, or as a head before bytes.

Data from before there were checksums has none, and is read as it is. A single flipped bit cannot make sealed data look
like data without a checksum, and change anything else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

SUM: Final = "crc32"
"""The name of the checksum among other facts."""

LINES: Final = "lines"
"""The name of the number of lines."""

_HEAD: Final = b"crc32"


class NotAsWritten(ValueError):
    """Raised if content does not have its checksum."""

    def __init__(self, what: str = "it", reason: str = "its checksum is another one") -> None:
        super().__init__(f"{what} is not what was written: {reason}")


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts, which JSON can represent, with their checksum as the last one."""
    plain = json.loads(json.dumps(facts))  # so that what is read back has the same order of keys
    return {**plain, SUM: _sum(plain)}


def unsealed(facts: Any, what: str = "it") -> Any:
    """The facts without their checksum. Raises `NotAsWritten`, with `what` for their name, if the checksum is wrong."""
    if not isinstance(facts, dict) or SUM not in facts:
        return facts
    rest = {name: fact for name, fact in facts.items() if name != SUM}
    if facts[SUM] != _sum(rest):
        raise NotAsWritten(what)
    return rest


def unsealed_json(line: bytes | str, what: str = "it") -> Any:
    """The facts in a line of JSON. Raises `NotAsWritten`, with `what` for their name, for any other content."""
    try:
        facts = json.loads(line)
    except ValueError:  # bytes that are not UTF-8, too
        raise NotAsWritten(what, "it is not JSON") from None
    return unsealed(facts, what)


def sealed_lines(entries: Iterable[Any]) -> str:
    """Lines of JSON, each with its checksum and the number of all lines, so that a missing line is detected."""
    facts = [*entries]
    return "".join(f"{json.dumps(sealed({**one, LINES: len(facts)}))}\n" for one in facts)


def unsealed_lines(text: str) -> list[Any]:
    """The facts of all lines. Raises `NotAsWritten`."""
    found = [unsealed_json(line) for line in text.splitlines()]
    if any(isinstance(one, dict) and one.get(LINES, len(found)) != len(found) for one in found):
        raise NotAsWritten
    return found


def _sum(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, separators=(",", ":"), sort_keys=True).encode())


def sealed_bytes(content: bytes) -> bytes:
    """The content with a checksum before it."""
    return _HEAD + zlib.crc32(content).to_bytes(4, "big") + content


def unsealed_bytes(content: bytes, *, older: bytes | None = None) -> bytes:
    """The content without its checksum. `older`: the beginning of content without one. Raises `NotAsWritten`."""
    if older is not None and content.startswith(older):
        return content
    body = len(_HEAD) + 4
    total = int.from_bytes(content[len(_HEAD) : body], "big")
    if not content.startswith(_HEAD) or len(content) < body or zlib.crc32(content[body:]) != total:
        raise NotAsWritten
    return content[body:]
