"""Seals of facts, lines and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.system.seals import (
    LINES,
    NotAsWritten,
    placed,
    sealed,
    sealed_bytes,
    sealed_lines,
    unsealed,
    unsealed_bytes,
    unsealed_lines,
)

PLACE = "state/versions/000000002.json"
FACTS: Any = st.dictionaries(
    st.text(max_size=3),
    st.integers() | st.text(max_size=3) | st.lists(st.floats(allow_nan=False), max_size=2),
    max_size=3,
)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(FACTS, st.data())
def test_facts_are_read_as_they_were_written_or_not_at_all(facts: dict[str, Any], data: Any) -> None:
    text = json.dumps(sealed(facts, PLACE)).encode()
    assert unsealed(text, PLACE) == facts
    assert placed(text) == (PLACE, facts)
    for damaged in (
        flipped(text, data.draw(st.integers(0, 8 * len(text) - 1))),
        text[: data.draw(st.integers(0, len(text) - 1))],
    ):
        try:
            found = unsealed(damaged, PLACE)
        except NotAsWritten:
            continue
        assert found == facts  # the bit was in white space, or in the case of an escaped letter


@given(st.lists(FACTS, min_size=1, max_size=4), st.data())
def test_a_line_that_is_missing_or_repeated_is_seen(entries: list[dict[str, Any]], data: Any) -> None:
    lines = sealed_lines(entries, PLACE).splitlines(keepends=True)
    found = unsealed_lines("".join(lines), PLACE)
    assert [{name: one[name] for name in one if name != LINES} for one in found] == entries
    lost, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    without = lines[:lost] + lines[lost + 1 :]
    instead = [*lines[:lost], lines[other], *lines[lost + 1 :]]
    for damaged in (without, instead if lost != other else [*lines, lines[lost]]):
        if damaged:
            with pytest.raises(NotAsWritten):
                unsealed_lines("".join(damaged), PLACE)


@given(st.binary(max_size=20), st.data())
def test_bytes_are_read_as_they_were_written_or_not_at_all(content: bytes, data: Any) -> None:
    kept = sealed_bytes(content, PLACE)
    assert unsealed_bytes(kept, PLACE) == content
    for damaged in (
        flipped(kept, data.draw(st.integers(0, 8 * len(kept) - 1))),
        kept[: data.draw(st.integers(0, len(kept) - 1))],
    ):
        try:
            found = unsealed_bytes(damaged, PLACE)
        except NotAsWritten:
            continue
        assert found == content


@pytest.mark.parametrize(
    "read",
    [
        lambda place: unsealed(json.dumps(sealed({"a": 1}, PLACE)), place),
        lambda place: unsealed_lines(sealed_lines([{"a": 1}], PLACE), place),
        lambda place: unsealed_bytes(sealed_bytes(b"a", PLACE), place),
    ],
)
@pytest.mark.parametrize("place", ["state/versions/000000001.json", "manifest.json", "", PLACE + "x"])
def test_what_was_written_for_another_place_is_not_read(read: Callable[[str], Any], place: str) -> None:
    assert read(PLACE)
    with pytest.raises(NotAsWritten, match=f"it is {PLACE}, in the place of {place}"):
        read(place)


@pytest.mark.parametrize("text", ["", "[1]", "7", "null", "{", '{"a": 1}', '{"a": 1, "crc32": 5}', b"\xff"])
def test_what_has_no_seal_is_not_read(text: str | bytes) -> None:
    with pytest.raises(NotAsWritten, match=r"it is not JSON|it has no seal"):
        unsealed(text, PLACE)


def test_an_object_with_entries_of_a_seal_is_not_stored() -> None:
    with pytest.raises(ValueError, match="crc32, sealed_as cannot be stored"):
        sealed({"sealed_as": 1, "crc32": 2, "place": 3}, PLACE)
    assert unsealed(json.dumps(sealed({"place": 3, "lines": 4}, PLACE)), PLACE) == {"place": 3, "lines": 4}
