"""The state of a shard in files: what is stored is there in the next batch, whichever attempts there were."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.errors import CheckpointError
from beamlike.spark.state import index, shard, storage
from beamlike.spark.state.index import Head
from beamlike.spark.state.shard import Changed, Shard
from beamlike.system.seals import NotAsWritten
from stages.state.memory import Memory
from tests.stages.state.test_memory import Text

KEYS = [f"key {number}" for number in range(12)]
Changes = dict[str, bytes | None]
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=40), min_size=1)


def forget() -> None:
    """Clears the caches of this process, as a new process has none."""
    shard._KEPT.clear()
    storage.cached_files.cache_clear()


def step(
    place: Shard, head: Head | None, batch: int, changes: Changes, *, keep: bool = True
) -> Changed | None:
    """Runs an attempt at a batch."""
    state = place.load(head, batch)
    for key, value in changes.items():
        if value is None:
            state.delete("stage", key)
        else:
            state.put("stage", key, value)
            assert state.get("stage", key) == value
            assert state.decoded("stage", key, Text) == Text(value)
    changed = state.commit()
    if keep and changed is not None:
        place.keep(changed.head, state)
    return changed


def stored(place: Shard, head: Head | None) -> dict[str, bytes]:
    forget()
    state = place.load(head, 0)
    found = {key: state.get("stage", key) for key in KEYS}
    there = {key: value for key, value in found.items() if value is not None}
    # What this process remembers of earlier attempts and batches is of these values, or not used.
    decoded = {key: state.decoded("stage", key, Text) for key in KEYS}
    assert decoded == {key: None if value is None else Text(value) for key, value in found.items()}
    assert dict(state.values()) == {f"stage/{key}": value for key, value in there.items()}
    return there


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that few and small values reach."""
    monkeypatch.setattr(shard, "_FILE_BYTES", 100)
    monkeypatch.setattr(shard, "_MOST_FILES", 4)
    monkeypatch.setattr(index, "_COMPLETE", 2)
    monkeypatch.setattr(index, "_LONGEST_CHAIN", 3)
    monkeypatch.setattr(index, "_TAIL", 64)


@pytest.mark.usefixtures("small")
def test_it_has_what_was_stored_after_any_batches_and_attempts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    @given(st.lists(st.tuples(CHANGES, st.sampled_from(["once", "again", "elsewhere"])), max_size=20))
    def check(batches: list[tuple[Changes, str]]) -> None:
        place = Shard(str(tmp_path_factory.mktemp("state") / "data"), 0, 1)
        head: Head | None = None
        unused = set[str]()
        model = dict[str, bytes]()
        for batch, (changes, attempts) in enumerate(batches):
            if attempts == "again":  # another attempt, which does not count
                step(place, head, batch, dict.fromkeys(changes, b"other"))
            elif attempts == "elsewhere":
                forget()
            changed = step(place, head, batch, changes)
            for key, value in changes.items():
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            if changed is not None:
                head = changed.head
                unused |= {*changed.unused}
                for name in changed.unused:
                    (Path(place.folder) / name).unlink()
            assert stored(place, head) == model
        if head is not None:
            needed = place.load(head, 0).index.sizes
            assert not needed.keys() & unused
            assert len(needed) <= 4 + 2 * sum(map(len, model.values())) // 100 + 3 + 1

    check()


def test_a_batch_writes_its_changes_and_not_the_rest(tmp_path: Path) -> None:
    place = Shard(str(tmp_path), 0, 0)
    large = {f"large {number}": bytes(10_000) for number in range(200)}
    first = step(place, None, 0, {**large})
    assert first is not None
    assert first.head.size > 2_000_000
    head = first.head
    for batch in range(1, 50):
        changed = step(place, head, batch, {"key": b"small"})
        assert changed is not None
        assert changed.head.size < 40_000
        head = changed.head
    forget()
    assert place.load(head, 0).get("stage", "large 7") == bytes(10_000)
    assert len(place.load(head, 0).index.sizes) <= shard._MOST_FILES + 1


def test_many_batches_write_about_twice_what_they_change(tmp_path: Path) -> None:
    place, rng, size = Shard(str(tmp_path), 0, 0), random.Random(1), 2_000
    head: Head | None = None
    written = 0
    for batch in range(200):
        keys = range(1_000) if head is None else [rng.randrange(1_000) for _ in range(5)]
        changed = step(place, head, batch, {f"key {key}": bytes(size) for key in keys})
        assert changed is not None
        written += 0 if head is None else changed.head.size
        head = changed.head
    assert written < 2.2 * 199 * 5 * size


def test_bytes_of_values_that_were_replaced_are_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "_FILE_BYTES", 1_000_000)
    place = Shard(str(tmp_path), 0, 0)
    head: Head | None = None
    for batch in range(100):
        changed = step(place, head, batch, {f"key {batch % 7}": bytes(50_000)})
        assert changed is not None
        head = changed.head
        for name in changed.unused:
            (tmp_path / name).unlink()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_500_000


def test_a_cached_index_is_used_for_its_own_head_only(tmp_path: Path) -> None:
    place = Shard(str(tmp_path), 0, 0)
    first = step(place, None, 0, {"key 1": b"first"})
    assert first is not None
    step(place, first.head, 1, {"key 1": b"lost", "key 2": b"lost"})  # its batch is played again
    assert place.load(first.head, 1).get("stage", "key 1") == b"first"
    assert place.load(first.head, 1).get("stage", "key 2") is None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Shard, Head], list[bytes]]:
    """A function that returns the values that a batch decodes if it reads all of them."""
    monkeypatch.setattr(shard, "_REMEMBERED", Memory())

    def decoded(place: Shard, head: Head) -> list[bytes]:
        found: list[bytes] = []
        state = place.load(head, 9)
        for key in KEYS:
            state.decoded("stage", key, lambda value: found.append(value) or Text(value))  # type: ignore[func-returns-value]
        return found

    return decoded


def test_later_batches_decode_only_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Shard, Head], list[bytes]]
) -> None:
    place = Shard(str(tmp_path), 0, 0)
    first = step(place, None, 0, {"key 1": b"one", "key 2": b"two"}, keep=False)
    assert first is not None
    assert read(place, first.head) == []  # the first batch has decoded them
    with monkeypatch.context() as other_process:
        other_process.setattr(shard, "_REMEMBERED", Memory())
        second = step(place, first.head, 1, {"key 2": b"three"}, keep=False)
    assert second is not None
    assert read(place, second.head) == [b"three"]
    assert read(place, second.head) == []
    assert read(Shard(str(tmp_path), 0, 1), second.head) == [b"one", b"three"]


def test_values_that_are_merged_are_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Shard, Head], list[bytes]]
) -> None:
    monkeypatch.setattr(shard, "_MOST_FILES", 4)
    place = Shard(str(tmp_path), 0, 0)
    head: Head | None = None
    for batch, key in enumerate(KEYS):
        changed = step(place, head, batch, {key: key.encode()})
        assert changed is not None
        head = changed.head
    assert head is not None
    assert len(place.load(head, 9).index.live) < len(KEYS)
    assert read(place, head) == []


def test_a_file_that_is_gone_or_damaged_is_reported_by_name(tmp_path: Path) -> None:
    place = Shard(str(tmp_path), 0, 0)
    changed = step(place, None, 0, {"key 1": b"value"})
    assert changed is not None
    file = tmp_path / changed.head.name
    whole = file.read_bytes()
    for damaged in (b"X" + whole[1:], whole[:-30] + b"X" + whole[-29:], whole[:-1], b""):
        file.write_bytes(damaged)
        with pytest.raises(NotAsWritten, match=changed.head.name):
            stored(place, changed.head)
    file.unlink()
    with pytest.raises(CheckpointError, match=rf"{changed.head.name} is gone"):
        stored(place, changed.head)
