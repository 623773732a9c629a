"""Checksums of facts, lines and bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.system.seals import (
    NotAsWritten,
    sealed,
    sealed_bytes,
    sealed_lines,
    unsealed,
    unsealed_bytes,
    unsealed_lines,
)

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
    facts.pop("crc32", None)
    text = json.dumps(sealed(facts)).encode()
    assert unsealed(json.loads(text)) == facts
    bit = data.draw(st.integers(0, 8 * len(text) - 1))
    try:
        found = unsealed(json.loads(flipped(text, bit)))
    except ValueError:
        return
    # A bit flip in the name of the checksum leaves the facts unchanged.
    assert {name: found[name] for name in facts} == facts


@given(st.lists(FACTS, min_size=1, max_size=4), st.data())
def test_a_line_that_is_missing_is_seen(entries: list[dict[str, Any]], data: Any) -> None:
    entries = [
        {name: fact for name, fact in one.items() if name not in ("crc32", "lines")} for one in entries
    ]
    lines = sealed_lines(entries).splitlines(keepends=True)
    assert [
        {name: one[name] for name in one if name != "lines"} for one in unsealed_lines("".join(lines))
    ] == entries
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    if lines:
        with pytest.raises(NotAsWritten):
            unsealed_lines("".join(lines))


@given(st.binary(max_size=20), st.data())
def test_bytes_are_read_as_they_were_written_or_not_at_all(content: bytes, data: Any) -> None:
    kept = sealed_bytes(content)
    assert unsealed_bytes(kept) == unsealed_bytes(kept, older=b"ARROW1") == content
    for damaged in (
        flipped(kept, data.draw(st.integers(0, 8 * len(kept) - 1))),
        kept[: data.draw(st.integers(0, len(kept) - 1))],
    ):
        with pytest.raises(NotAsWritten):
            unsealed_bytes(damaged, older=b"ARROW1")


def test_what_has_no_checksum_is_of_before_there_were_any() -> None:
    assert unsealed({"a": 1}) == {"a": 1}
    assert unsealed([1]) == [1]
    assert unsealed_lines('{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]
    assert unsealed_bytes(b"ARROW1...", older=b"ARROW1") == b"ARROW1..."
