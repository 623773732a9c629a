"""Compressed files: the name decides, whole members are read, and of a damaged file what stands before the damage."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import fs

import beamlike as bl
from beamlike.io.files.paths import open_file
from beamlike.io.files.unpacking import Damaged
from tests.beamlike.io.test_sources import sorted_out

LINES: Final = b"".join(b'{"n": %d}\n' % n for n in range(2_000))


def _packed(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.Codec(codec).compress(data, asbytes=True)


PACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    ".gz": gzip.compress,
    ".GZ": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": _packed("zstd"),
}


def _read(file: Path, step: int = 1 << 20) -> tuple[bytes, str]:
    """Returns what can be unpacked of a file, and why the rest cannot."""
    found = b""
    try:
        with open_file(str(file)) as handle:
            while part := handle.read(step):
                found += part
    except Damaged as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("step", [1, 100, 1 << 20])
@pytest.mark.parametrize("padding", [0, 1, 7, 512, 100_000])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_whole_members_of_a_padded_gzip_are_read(
    members: int, padding: int, step: int, tmp_path: Path
) -> None:
    if step == 1 and padding > 512:
        return
    file = tmp_path / "a.gz"
    file.write_bytes((gzip.compress(b"12345\n") + bytes(padding)) * members)
    assert _read(file, step) == (b"12345\n" * members, "")


@pytest.mark.parametrize("junk", [b"junk", b"\0\0junk", b"\x1f\x8bjunk", gzip.compress(LINES)[:-9], b"x^"])
@pytest.mark.parametrize("lines", [b"1\n", LINES])
def test_what_stands_before_the_damage_is_read(lines: bytes, junk: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(lines) + junk)
    found, why = _read(file)
    assert found.startswith(lines)
    assert f"it cannot be unpacked beyond byte {len(found)}: " in why


@pytest.mark.parametrize("end", PACK)
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.99])
def test_a_cut_file_is_read_up_to_its_end(end: str, kept: float, tmp_path: Path) -> None:
    file = tmp_path / f"a{end}"
    packed = PACK[end](LINES)
    file.write_bytes(packed[: int(len(packed) * kept)])
    found, why = _read(file)
    assert LINES.startswith(found)
    assert "it cannot be unpacked" in why
    if end.lower() == ".gz":
        assert len(found) > len(LINES) * kept / 2


@pytest.mark.parametrize("end", [".gz", ".GZ", ".bz2", ".BZ2", ".zst", ".ZST", ".Zst"])
def test_the_case_of_a_name_does_not_matter_in_an_object_store(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(
        "beamlike.io.files.paths._file_system", lambda path: (local, path.removeprefix("hdfs://host/"))
    )
    (tmp_path / f"A{end}").write_bytes(PACK[end.lower()](LINES))
    assert sorted_out(bl.JSONLines("hdfs://host/", {"n": int}))[0] == [(n,) for n in range(2_000)]


@pytest.mark.parametrize(
    "start", [b"x^", b"x\x01", b"x\x9c", b"x\xda", b"\x1f\x8b", b"(\xb5/\xfd", b"\xfd7zXZ\0"]
)
@pytest.mark.parametrize("form", [bl.JSONLines, bl.CSV])
def test_the_first_bytes_of_a_file_do_not_make_it_a_compressed_one(
    form: Any, start: bytes, tmp_path: Path
) -> None:
    good = b"n\n1\n" if form is bl.CSV else b'{"n": 1}\n'
    (tmp_path / "0.txt").write_bytes(good)
    (tmp_path / "1.txt").write_bytes(start + b"2 junk,n\n" + (b"a,1\n" if form is bl.CSV else good))
    rows, letters = sorted_out(form(tmp_path, {"n": int}))
    assert (1,) in rows
    assert len(rows) == 2 or "1.txt" in letters[0][0]
    is_text = not any(byte > 127 for byte in start)
    assert (len(rows) == 2) is (is_text or (form is bl.JSONLines and start[:1] == b"x"))


@pytest.mark.parametrize("name", ["x^2", "x\x01", "x^", "xy", "x\x01y"])
@pytest.mark.parametrize("header", [True, False])
def test_a_column_or_value_of_a_csv_may_begin_like_compressed_bytes(
    name: str, header: bool, tmp_path: Path
) -> None:
    (tmp_path / "1.csv").write_text(f"{name},y\n{name},2\n")
    rows, letters = sorted_out(bl.CSV(tmp_path, {name: str, "y": str}, header=header))
    assert rows == [(name, "y")] * (not header) + [(name, "2")]
    assert letters == []
    if header:
        assert bl.CSV(tmp_path).schema() == {name: pl.String, "y": pl.Int64}


@pytest.mark.parametrize("pack", [gzip.compress, _packed("zstd"), zlib.compress, bz2.compress])
@pytest.mark.parametrize("end", ["jsonl", "txt", "data"])
def test_a_compressed_file_without_the_name_of_one_is_a_dead_letter_and_the_others_are_read(
    end: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / f"0.{end}").write_bytes(LINES)
    (tmp_path / f"1.{end}").write_bytes(pack(LINES))
    rows, letters = sorted_out(bl.JSONLines(tmp_path, {"n": int}))
    assert rows == [(n,) for n in range(2_000)]
    assert letters
    assert all(f"1.{end}: " in why for why, _ in letters)
    if pack is gzip.compress:
        assert (
            "it is compressed with gzip, and its name does not say so; give it a name that ends in .gz"
            in letters[0][0]
        )
