"""Dead letters for what is in an input folder and is no file to read, with its name. The other files are read."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import beamlike as bl
from tests.beamlike.io.test_sources import sorted_out

NOBODY: Final = 65534
FORMATS: Final = (bl.JSONLines, bl.CSV, bl.Parquet)


def _write(path: Path | str, form: Any = bl.JSONLines, value: int = 1) -> None:
    frame = pl.DataFrame({"n": [value]})
    {bl.JSONLines: frame.write_ndjson, bl.CSV: frame.write_csv, bl.Parquet: frame.write_parquet}[form](path)


def _socket(path: Path) -> None:
    os.chdir(path.parent)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)


def _outside(path: Path) -> None:
    (path.parent.parent / "home").mkdir()
    (path.parent.parent / "home/secret").write_text("TOP-SECRET\n")
    path.symlink_to("../home/secret")


def _folder_outside(path: Path) -> None:
    _outside(path)
    path.unlink()
    path.symlink_to("../home")


def _named(name: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        file = os.path.join(os.fsencode(path.parent), name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as opened:
            opened.write(b'{"n": 5}\n')

    return make


def _closed(path: Path) -> None:
    path.mkdir()
    _write(path / "c.jsonl")
    path.chmod(0o444)


KINDS: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "a link to a file that does not exist"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "a pipe": (lambda path: os.mkfifo(path), "a pipe, and no regular file"),
    "a socket": (_socket, "a socket, and no regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "outside of the path that is read"),
    "a link to a file outside": (_outside, "outside of the path that is read"),
    "a link to a folder outside": (_folder_outside, "outside of the path that is read"),
    "a name that is not UTF-8": (_named(b"b\xff.jsonl"), "its name is not UTF-8"),
    "a folder that is not UTF-8": (_named(b"d=\xff/b.jsonl"), "its name is not UTF-8"),
    "a file without rights": (lambda path: (_write(path), path.chmod(0)), "Permission denied"),
    "a folder without rights": (lambda path: path.mkdir(mode=0), "a folder that cannot be listed"),
    "a folder without a right to enter": (_closed, "Permission denied"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter. The test runs as a user without rights to what others keep from them."""
    here, made = os.getcwd(), Path(tempfile.mkdtemp())
    made.chmod(0o777)
    try:
        if is_root := os.geteuid() == 0:
            os.seteuid(NOBODY)
        (made / "in").mkdir()
        yield made / "in"
    finally:
        if is_root:
            os.seteuid(0)
        os.chdir(here)
        for path in made.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(made)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_a_dead_letter_with_its_name(kind: str, form: Any, folder: Path) -> None:
    make, reason = KINDS[kind]
    for number in (1, 2):
        _write(folder / f"{number}.x", form, number)
    make(folder / "b.jsonl")
    for path in (folder, folder / "**"):
        rows, letters = sorted_out(form(path, schema={"n": int}))
        assert sorted(rows) == [(1,), (2,)]
        [(why, row)] = letters
        assert reason in why
        assert "b" in why
        assert '{"file": ' in row
        assert "TOP-SECRET" not in row
    assert form(folder).schema() == {"n": pl.Int64}  # it is no file to infer columns from


@pytest.mark.parametrize("mode", [0, 0o444])
@pytest.mark.parametrize("below", ["*", "*/*.x", "*/1.x", "*/*/1.x", "[ab]/**/1.x"])
def test_a_closed_folder_below_a_glob_is_a_dead_letter(below: str, mode: int, folder: Path) -> None:
    deep = "c/" if below == "*/*/1.x" else ""
    for name in ("a", "b"):
        (folder / name / deep).mkdir(parents=True)
        _write(folder / name / deep / "1.x")
    (folder / "b").chmod(mode)
    rows, letters = sorted_out(bl.JSONLines(folder / below, schema={"n": int}))
    assert rows == [(1,)]
    [(why, row)] = letters
    assert f"{folder}/b" in row
    assert "a folder that cannot be listed" in why or "Permission denied" in why


@pytest.mark.parametrize("mode", [0, 0o111])
@pytest.mark.parametrize("below", ["", "/*.jsonl", "/c*", "/*/1.jsonl", "/**", "/**/1.jsonl", "/sub/*"])
def test_a_path_or_glob_in_a_folder_that_cannot_be_listed_says_so(
    below: str, mode: int, folder: Path
) -> None:
    (folder / "closed/sub").mkdir(parents=True)
    _write(folder / "closed/1.jsonl")
    closed = folder / ("closed/sub" if mode and below == "/sub/*" else "closed")
    closed.chmod(mode)
    source = bl.JSONLines(f"{folder}/closed{below}", schema={"n": int})
    for later in (False, True):
        with pytest.raises(PermissionError, match=f"Permission denied: '{folder}/closed"):
            source.found(later=later)


def test_what_is_not_in_a_folder_that_cannot_be_listed_is_missing(folder: Path) -> None:
    folder.chmod(0o111)
    with pytest.raises(FileNotFoundError, match="has no 'x'"):
        bl.JSONLines(folder / "x", schema={"n": int}).found()


@pytest.mark.parametrize("root", ["", "/b"])
@pytest.mark.parametrize("below", ["**/1.x", "**/sub/1.x"])
def test_a_folder_that_cannot_be_entered_is_told_if_the_glob_names_what_is_in_it(
    below: str, root: str, folder: Path
) -> None:
    for name in ("a/sub", "b/sub"):
        (folder / name).mkdir(parents=True)
        _write(folder / name / "1.x")
    (folder / "b").chmod(0o444)
    rows, letters = sorted_out(bl.JSONLines(f"{folder}{root}/{below}", schema={"n": int}))
    assert rows == ([] if root else [(1,)])
    assert letters
    assert all(f"{folder}/b" in row for _, row in letters)


@pytest.mark.parametrize("rows", [1, 100])
def test_a_run_goes_on_and_tells_each_of_them_once(rows: int, tmp_path: Path) -> None:
    kinds = [make for kind, (make, _) in KINDS.items() if "right" not in kind]
    for number, make in enumerate(kinds):
        folder = tmp_path / str(number) / "in"
        folder.mkdir(parents=True)
        _write(folder / "1.jsonl")
        make(folder / "b")
    for again in (False, True):
        p = bl.Pipeline("p")
        source = bl.JSONLines([f"{tmp_path}/{number}/in" for number in range(len(kinds))], {"n": int})
        read = p.read("r", source)
        read.write("o", out := bl.Memory())
        read.dead_letters().write("d", dead := bl.Memory())
        run = p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", chunk_rows=rows, quiet=True))
        counts = [batch.sources["r"].dead_letters for batch in run.batches]
        assert (sum(counts), len(dead.rows())) == ((0, 0) if again else (len(kinds), len(kinds)))
        assert len(out.rows()) == (0 if again else len(kinds))


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_it_is_a_dead_letter_as_well(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    _write(tmp_path / "in/1.jsonl")
    (tmp_path / "in/nowhere.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "in/pipe.jsonl")
    _outside(tmp_path / "in/outside.jsonl")
    _named(b"b\xff.jsonl")(tmp_path / "in/x")
    p = bl.Pipeline("p")
    read = p.read("r", bl.JSONLines(tmp_path / "in", schema={"n": int}))
    read.write("o", bl.JSONLines(tmp_path / "out"))
    read.dead_letters().write("d", bl.JSONLines(tmp_path / "dead"))
    p.run(bl.SparkRunner(tmp_path / "checkpoint", session=spark, shards=1))
    read = [pl.read_ndjson(file) for file in (tmp_path / "dead").glob("*.jsonl")]
    assert sum(map(len, read)) == 4
    assert sum(len(pl.read_ndjson(file)) for file in (tmp_path / "out").glob("*.jsonl")) == 1
