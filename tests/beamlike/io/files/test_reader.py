"""Files that a resumed run reads on: each row once, in order, and repeatable on request."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Faulty, Pieces
from beamlike.io.sources import PlannedBatch, Reader

SCHEMA = {"n": int}


def write(folder: Path, number: int, rows: range, bad: bool = False) -> None:
    """Writes a file of these numbers, which is read after files of lower numbers."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:03d}.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in rows) + ("bad\n" if bad else ""))
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def numbers(pieces: Pieces) -> list[int]:
    """Returns the rows of a batch; -1 stands for a row that could not be read."""
    found: list[int] = []
    for piece in pieces.pieces:
        rows = piece.rows
        found += (
            [-1] * len(rows.dead_letters)
            if isinstance(rows, Faulty)
            else rows.lazy().collect()["n"].to_list()
        )
    return found


def take(reader: Reader, position: dict[str, Any]) -> tuple[PlannedBatch, list[int]] | None:
    """Reads the next batch and moves the position."""
    taken = reader.new()
    if taken is None:
        return None
    assert reader.new() == taken
    rows = numbers(reader.read(taken))
    position.update(taken.position)
    return taken, rows


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    limit=st.integers(1, 9),
    files=st.sampled_from([None, 1, 2]),
    apart=st.booleans(),
    restarts=st.sets(st.integers(0, 12)),
)
def test_each_row_comes_once_and_in_order_whatever_is_cut_and_started_again(
    sizes: list[int], limit: int, files: int | None, apart: bool, restarts: set[int]
) -> None:
    with TemporaryDirectory() as name:
        folder, total = Path(name) / "data", 0
        for number, size in enumerate(sizes):
            write(folder, number, range(total, total + size))
            total += size
        source = bl.JSONLines(folder, SCHEMA, max_files_per_trigger=files)
        position: dict[str, Any] = {}
        reader, rows, batches = source.resume(position, limit, apart=apart), list[int](), 0
        while True:
            before = dict(position)
            if (found := take(reader, position)) is None:
                break
            rows += found[1]
            # Killed before it was recorded as done: the next run reads the same rows, and continues like this one.
            if batches in restarts:
                reader = source.resume(before, limit + 1, apart=apart)
                assert numbers(reader.read(found[0])) == found[1]
            batches += 1
        assert rows == list(range(total))
        assert len(position) == len(sizes)
        assert sorted(place["number"] for place in position.values()) == list(range(len(sizes)))
        assert all(place.keys() == {"number", "modified", "size"} for place in position.values())


def test_a_large_file_is_cut_and_a_later_run_reads_the_rest(tmp_path: Path) -> None:
    write(tmp_path, 0, range(10))
    source, position = bl.JSONLines(tmp_path, SCHEMA), dict[str, Any]()
    taken, rows = take(source.resume(position, 4), position) or pytest.fail("nothing is there")
    assert (rows, taken.more) == ([0, 1, 2, 3], True)
    [place] = position.values()
    assert place == {
        "number": 0,
        "pieces": 1,
        "rows": 4,
        "modified": place["modified"],
        "size": place["size"],
    }
    write(tmp_path, 1, range(10, 12))
    later = source.resume(position, 100)
    assert [found[1] for found in iter(lambda: take(later, position), None)] == [[*range(4, 12)]]


def test_what_cannot_be_read_comes_again_too(tmp_path: Path) -> None:
    write(tmp_path, 0, range(3), bad=True)
    source = bl.JSONLines(tmp_path, SCHEMA)
    taken = source.resume({}, 100).new()
    assert taken is not None
    assert numbers(source.resume({}, 100).read(taken)) == [-1, 0, 1, 2]


def test_files_that_come_later_are_found_and_told_where_they_are_splits(tmp_path: Path) -> None:
    write(tmp_path, 0, range(2))
    source, position = bl.JSONLines(tmp_path, SCHEMA), dict[str, Any]()
    reader = source.resume(position, 100, apart=True)
    first = reader.new()
    assert first is not None
    pieces = reader.read(first)
    assert [*pieces.known] == [str(tmp_path / "000.jsonl")]
    assert [piece.over for piece in pieces.pieces] == [True]
    assert reader.new() is None
    write(tmp_path, 1, range(2, 3))
    second = reader.new()
    assert second is not None
    assert not second.more
    assert [*second.position] == [str(tmp_path / "001.jsonl")]


def test_input_that_is_gone_or_another_is_not_taken_for_the_same(tmp_path: Path) -> None:
    write(tmp_path, 0, range(6))
    source = bl.JSONLines(tmp_path, SCHEMA)
    taken = source.resume({}, 6).new()
    assert taken is not None
    write(tmp_path, 0, range(9))
    with pytest.raises(LookupError, match=r"000\.jsonl' was changed"):
        source.resume({}, 6).read(taken)
    (tmp_path / "000.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"000\.jsonl' is gone"):
        source.resume({}, 6).read(taken)


def test_rows_in_memory_go_on_from_a_row() -> None:
    source, position = bl.Rows(pl.DataFrame({"n": range(5)}), rows_per_batch=2), dict[str, Any]()
    reader = source.resume(position, 100)
    taken = reader.new()
    assert taken == PlannedBatch([0, 2], {"row": 2}, True)
    assert reader.read(taken)["n"].to_list() == [0, 1]
    rest = source.resume(taken.position, 100)
    assert rest.read(taken)["n"].to_list() == [0, 1]  # done again
    assert rest.read(rest.new() or pytest.fail("nothing is left"))["n"].to_list() == [2, 3]
    last = rest.new()
    assert last == PlannedBatch([4, 5], {"row": 5}, False)
