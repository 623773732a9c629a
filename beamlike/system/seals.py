"""Seals of stored data: a checksum, and the place for which the data were written.

A place is the path of a file within its checkpoint, savepoint or recording, such as "state/versions/000000002.json". So
a damaged file is detected, and also a whole one in the place of another.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

PLACE: Final = "sealed_as"
"""The name of the entry with the place."""

SUM: Final = "crc32"
"""The name of the entry with the checksum."""

LINES: Final = "sealed_lines"
"""The name of the entry with the number of lines."""

_LINE: Final = "sealed_line"


class NotAsWritten(ValueError):
    """Raised if data do not have the content that was stored."""

    def __init__(self, what: str = "it", reason: str = "its checksum is another one") -> None:
        super().__init__(f"{what} is not what was written: {reason}")


def sealed(facts: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Returns a copy of a JSON object with its place and the checksum of all entries as the last entries.

    Raises `ValueError` if the object has such entries of its own.
    """
    if taken := {PLACE, SUM} & {*facts}:
        raise ValueError(f"{', '.join(sorted(taken))} cannot be stored in a sealed object")
    # Converted, so that keys have the same order as when they are read back.
    plain = {**json.loads(json.dumps(facts)), PLACE: place}
    return {**plain, SUM: _sum(plain)}


def unsealed(text: bytes | str, place: str, what: str = "it") -> dict[str, Any]:
    """Parses a sealed JSON object, and returns it without its seal.

    Raises `NotAsWritten`, which calls the text `what`, if it is no JSON, or has no seal, a wrong checksum, or the seal
    of another place.
    """
    found, facts = placed(text, what)
    if found != place:
        raise NotAsWritten(what, f"it is {found}, in the place of {place}")
    return facts


def placed(text: bytes | str, what: str = "it") -> tuple[str, dict[str, Any]]:
    """Parses a sealed JSON object, and returns its place, and the object without its seal. Raises `NotAsWritten`."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):  # also for bytes that are not UTF-8
        raise NotAsWritten(what, "it is not JSON") from None
    if not isinstance(facts, dict) or SUM not in facts or PLACE not in facts:
        raise NotAsWritten(what, "it has no seal, as if an earlier version of beamlike had written it")
    total = facts.pop(SUM)
    if total != _sum(facts):
        raise NotAsWritten(what)
    return facts.pop(PLACE), facts


def sealed_lines(entries: Iterable[Mapping[str, Any]], place: str) -> str:
    """Returns a sealed line of JSON for each entry, with its number and the number of all lines, so that a missing or
    repeated line is detected.
    """
    facts = [*entries]
    numbers = {LINES: len(facts)}
    return "".join(
        f"{json.dumps(sealed({**one, _LINE: line, **numbers}, place))}\n" for line, one in enumerate(facts)
    )


def unsealed_lines(text: str, place: str, what: str = "it") -> list[dict[str, Any]]:
    """Parses the result of `sealed_lines`. Raises `NotAsWritten` if a line is damaged, missing or of another place."""
    found = [unsealed(line, place, what) for line in text.splitlines()]
    if any((one.pop(_LINE, None), one[LINES]) != (number, len(found)) for number, one in enumerate(found)):
        raise NotAsWritten(what, "a line is missing")
    return found


def sealed_bytes(content: bytes, place: str) -> bytes:
    """Returns the content with its seal before it, a line of JSON."""
    head = json.dumps(sealed({"content": zlib.crc32(content)}, place))
    return head.encode() + b"\n" + content


def unsealed_bytes(content: bytes, place: str, what: str = "it") -> bytes:
    """Returns the result of `sealed_bytes` without its seal. Raises `NotAsWritten`, like `unsealed`."""
    head, _, body = content.partition(b"\n")
    if unsealed(head, place, what)["content"] != zlib.crc32(body):
        raise NotAsWritten(what)
    return body


def _sum(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, separators=(",", ":"), sort_keys=True).encode())
