"""Decoded values are remembered as long as the store has the same value, and within a limit."""

from __future__ import annotations

from pathlib import Path

import attrs

from stages.state.memory import LEAST_BYTES, Memory, most_bytes
from stages.state.store import DictStore


@attrs.frozen
class Text:
    """A decoded value of so many bytes."""

    value: bytes

    @property
    def size(self) -> int:
        return len(self.value)


def test_a_value_is_decoded_once_until_it_is_replaced() -> None:
    store = DictStore()
    store.put("stage", "key", b"a")
    first = store.decoded("stage", "key", Text)
    assert first == Text(b"a")
    assert store.decoded("stage", "key", Text) is first
    store.put("stage", "key", b"b")
    assert store.decoded("stage", "key", Text) == Text(b"b")
    store.values["stage", "key"] = b"c"  # as when state is loaded
    assert store.decoded("stage", "key", Text) == Text(b"c")
    store.delete("stage", "key")
    assert store.decoded("stage", "key", Text) is None


def test_as_many_values_are_remembered_as_there_is_room_for() -> None:
    memory, decoded, tokens = Memory(limit=100), list[int](), [object() for _ in range(20)]

    def read(number: int) -> Text:
        decoded.append(number)
        return Text(bytes(10))

    for _ in range(50):
        for number, token in enumerate(tokens):
            memory.get(("stage", str(number)), token, lambda number=number: read(number))  # type: ignore[misc]
    # Half of the values fit. With the oldest forgotten first, none would be found again.
    assert 20 < len(decoded) < 0.9 * 50 * 20


def test_a_value_that_is_too_large_is_not_remembered() -> None:
    memory, token = Memory(limit=5), object()
    first = memory.get(("stage", "key"), token, lambda: Text(bytes(10)))
    assert memory.get(("stage", "key"), token, lambda: Text(bytes(10))) is not first


def test_a_small_container_has_the_least_room_and_a_large_one_a_share(tmp_path: Path) -> None:
    small, unlimited = tmp_path / "small", tmp_path / "unlimited"
    small.write_text("2000000000\n")
    unlimited.write_text("max\n")
    assert most_bytes(small) == LEAST_BYTES
    assert most_bytes(unlimited) == most_bytes(tmp_path / "none") >= LEAST_BYTES
