"""Text in encodings other than UTF-8, and bytes that are no text: they are decoded correctly, or are dead letters."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import CSV, JSONLines, Part
from tests.beamlike.io.test_sources import put, sorted_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {"t": str, "n": int}


def test_a_line_of_csv_that_is_not_utf8_is_a_letter_with_a_hint(tmp_path: Path) -> None:
    lines = ["t,n", "é,1", "è,2", "ok,3", '"two\nlines é",4']
    put(tmp_path / "a", "\n".join(lines).encode("latin-1"))
    put(tmp_path / "b", "t,n\n€5,1\n".encode("cp1252"))
    put(tmp_path / "c", "t,n,unread\nü,1,\n".encode() + b"\xc3\xbc\xff,2,\nx,3,\xe9\n")
    rows, letters = sorted_out(CSV(tmp_path, schema=SCHEMA))
    assert rows == [("ok", 3), ("ü", 1)]
    assert letters == [
        ("a: not UTF-8: it has the byte 0xe9; is it latin-1 (encoding='latin-1')?", "\\xe9,1"),
        ("a: not UTF-8: it has the byte 0xe8; is it latin-1 (encoding='latin-1')?", "\\xe8,2"),
        ("a: not UTF-8: it has the byte 0xe9; is it latin-1 (encoding='latin-1')?", '"two\nlines \\xe9",4'),
        ("b: not UTF-8: it has the byte 0x80; is it cp1252 (encoding='cp1252')?", "\\x805,1"),
        ("c: not UTF-8: it has the byte 0xff", "ü\\xff,2,"),
        ("c: not UTF-8: it has the byte 0xe9; is it latin-1 (encoding='latin-1')?", "x,3,\\xe9"),
    ]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_header_that_is_not_utf8_names_no_columns(encoding: str, tmp_path: Path) -> None:
    put(tmp_path / "f", "n,tä\n1,a\n".encode(encoding))
    byte, line = ("0xe4", "1,a") if encoding == "latin-1" else ("0xff", "\x001\x00,\x00a\x00")
    why = f"not UTF-8: it has the byte {byte}; is it {encoding} (encoding={encoding!r})?"
    rows, letters = sorted_out(CSV(tmp_path, schema={"n": int, "tä": str}))
    assert rows == []
    assert letters[0] == (f"f: the header is {why}", line)
    with pytest.raises(FileNotFoundError, match=re.escape(f"its header is {why}")):
        CSV(tmp_path).schema()
    assert sorted_out(CSV(tmp_path, encoding=encoding)) == ([(1, "a")], [])


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz"])
@pytest.mark.parametrize("encoding", ["ISO-8859-1", "utf-16", "UTF-16LE", "utf-8-sig", "utf8", "shift_jis"])
def test_what_is_written_in_an_encoding_is_read_in_it(encoding: str, name: str, tmp_path: Path) -> None:
    text = "キー" if encoding == "shift_jis" else "é"
    frame = pl.DataFrame({text: ["è" if text == "é" else "値", 'a\n"b"', None], "n": [1, 2, 3]})
    CSV(tmp_path / "out", encoding=encoding).write(frame, Part("q", 0))
    (file,) = (tmp_path / "out").iterdir()
    written = file.read_bytes()
    assert written.decode(encoding).startswith(f"{text},n\n")
    put(tmp_path / "in" / name, gzip.compress(written) if name.endswith(".gz") else written)
    assert sorted_out(CSV(tmp_path / "in", encoding=encoding)) == (frame.rows(), [])


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    put(tmp_path / "f", "\ufefft,n\né,1\n")
    for encoding in ("utf-8", "utf-8-sig"):
        assert sorted_out(CSV(tmp_path, schema=SCHEMA, encoding=encoding)) == ([("é", 1)], [])
    put(tmp_path / "f", "\ufefft,n\né,1\n".encode("utf-16-le"))
    assert sorted_out(CSV(tmp_path, schema=SCHEMA, encoding="utf-16-le")) == ([("é", 1)], [])


@pytest.mark.parametrize(
    ("encoding", "text", "letter"),
    [
        ("cp1252", "t,n\n€,1\n".encode("cp1252") + b"\x81,2\n", ("it has the byte 0x81", "\\x81,2")),
        ("ascii", b"t,n\n\x80,1\n", ("it has the byte 0x80", "\\x80,1")),
        ("utf-16", "t,n\n€,1\n".encode("utf-16") + b"\x00\xd82\x00,\x002\x00", ("it has", "\\x80\\xd82,2")),
        ("utf-16", "t,n\n€,1\n".encode("utf-16") + b"2", ("it has the byte 0xb2", "\\xb2")),
    ],
)
def test_bytes_that_are_none_of_the_encoding_are_letters(
    encoding: str, text: bytes, letter: tuple[str, str], tmp_path: Path
) -> None:
    put(tmp_path / "f", text)
    rows, ((why, line),) = sorted_out(CSV(tmp_path, schema=SCHEMA, encoding=encoding))
    assert rows == ([] if encoding == "ascii" else [("€", 1)])
    assert why.startswith(f"f: not {encoding}: {letter[0]}")
    assert line == letter[1]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_without_a_byte_order_mark_is_a_letter_and_the_others_are_read(
    encoding: str, declared: bool, tmp_path: Path
) -> None:
    put(tmp_path / "a", "t,n\né,1\n".encode(f"{encoding}-le"), at=1)
    put(tmp_path / "b", "t,n\né,2\n".encode(encoding), at=2)
    rows, letters = sorted_out(CSV(tmp_path, schema=SCHEMA if declared else None, encoding=encoding))
    assert rows == [("é", 2)]
    [(why, row)] = letters
    assert why.startswith(f"a: it cannot be read as {encoding}: ")
    assert "BOM" in why
    assert "/a" in row


def test_half_a_character_of_an_escape_stops_no_run(tmp_path: Path) -> None:
    put(tmp_path / "a", "t,n\n\\ud800,1\n", at=1)
    put(tmp_path / "b", "t,n\n\\u00e9,2\n", at=2)
    rows, [(why, _)] = sorted_out(CSV(tmp_path, schema=SCHEMA, encoding="unicode_escape"))
    assert rows == [("é", 2)]
    assert why.startswith("a: it cannot be read as unicode_escape: ")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "utf-8"])
def test_a_compressed_file_without_the_name_of_one_is_a_letter_in_any_encoding(
    encoding: str, tmp_path: Path
) -> None:
    content = "t,n\né,1\n".encode(encoding)
    put(tmp_path / "a", gzip.compress(content), at=1)
    put(tmp_path / "b", content, at=2)
    rows, letters = sorted_out(CSV(tmp_path, schema=SCHEMA, encoding=encoding))
    assert rows == [("é", 1)]
    assert [why for why, _ in letters] == [
        "a: it is compressed with gzip, and its name does not say so; give it a name that ends in .gz"
    ]


def test_a_character_that_the_encoding_has_not_is_not_written(tmp_path: Path) -> None:
    sink = CSV(tmp_path, encoding="latin-1")
    for frame, where in (
        (pl.DataFrame({"n": [1], "t": ["5 €"]}), "column 't'"),
        (pl.DataFrame({"€": [1]}), "the header"),
    ):
        with pytest.raises(
            ValueError, match=rf"{where} has '€', which latin-1 cannot encode; choose another"
        ):
            sink.write(frame, Part("q", 0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["latin_l", "base64", "undefined", "", "utf-8\0", "é", None, 8])
def test_what_is_no_encoding_is_refused_when_it_is_declared(name: Any) -> None:
    expected = "CSV: encoding must be 'utf-8', 'latin-1', 'cp1252' or another that Python knows, not "
    near = "; did you mean 'latin'?" if name == "latin_l" else ""
    with pytest.raises(ValueError, match=re.escape(f"{expected}{name!r}{near}")):
        bl.CSV("data", encoding=name)


# JSON lines


def test_half_a_character_in_json_is_a_letter_and_not_a_null_character(tmp_path: Path) -> None:
    halves = [
        r"\ud800",
        r"x\uDBFFx",
        r"\ud800\\udc00",
        r"\\\ud800",
        r"\ud800\u0041",
        r"\ude00\ud83d",
        r"\udc00",
    ]
    wholes = [r"\ud83d\ude00", r"\\ud800", r"\\\\udc00\\", r"\ud83d\ude00\ud83d\ude00", r"\ud7ff\ue000\u0000"]
    put(tmp_path / "f", "\n".join(f'{{"t": "{text}", "n": 1}}' for text in [*halves, *wholes]))
    rows, letters = sorted_out(JSONLines(tmp_path, schema=SCHEMA))
    assert rows == [(json.loads(f'"{text}"'), 1) for text in wholes]
    assert [line for _, line in letters] == [f'{{"t": "{text}", "n": 1}}' for text in halves]
    whys = {re.sub(r"\\u.{4}|'u'|\d+", "?", why) for why, _ in letters}
    unread = "not JSON that can be read: error parsing line: InvalidUnicodeCodepoint at character ? (?)"
    assert whys == {"f: it has ?, which is half a character", f"f: {unread}"}
    put(tmp_path / "f", r'{"unread": ["\ud800"], "n": 1}' + '\n{"n": 2}')
    rows, letters = sorted_out(JSONLines(tmp_path, schema=SCHEMA))
    assert (rows, len(letters)) == ([(None, 2)], 1)


@pytest.mark.parametrize("depth", [990, 1_010, 100_000])
def test_json_that_is_nested_deep_fails_no_run(depth: int, tmp_path: Path) -> None:
    lines = [f'{{"n": 1, "deep": {"[" * depth}{"]" * depth}}}', '{"n": "x"}', '{"n": 2}']
    put(tmp_path / "f", "\n".join(lines))
    rows, letters = sorted_out(JSONLines(tmp_path, schema={"n": int}))
    assert rows == ([(1,), (2,)] if depth < 1_024 else [(2,)])
    whys = ["f: column 'n' is \"x\", expected Int64"]
    assert [why for why, _ in letters if "DepthLimitExceeded" not in why] == whys
    assert len(letters) == (1 if depth < 1_024 else 2)
    assert not sorted_out(JSONLines(tmp_path, schema={"deep": str}))[0][0][0]
    assert JSONLines(tmp_path).schema() == {"n": pl.String}


_TEXTS = st.lists(st.sampled_from(["a", '\\"', "\\\\", "\\ud83d", "\\ude00", "u", "d83d", "\\n", "\u00e9"]))


@settings(max_examples=5 * settings().max_examples)
@given(st.lists(_TEXTS.map("".join), min_size=1, max_size=4))
def test_texts_of_json_are_what_they_say_or_letters(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder) / "f", "\n".join(f'{{"t": "{text}"}}' for text in texts))
        rows, letters = sorted_out(JSONLines(folder, schema={"t": str}))
    values = [json.loads(f'"{text}"') for text in texts]
    whole = [not re.search("[\ud800-\udfff]", value) for value in values]
    assert rows == [(value,) for value, good in zip(values, whole, strict=True) if good]
    assert len(letters) == whole.count(False)


@settings(max_examples=5 * settings().max_examples)
@given(st.lists(st.binary(max_size=4).filter(lambda text: not set(text) & set(b'\r\n",'))), st.booleans())
def test_every_line_of_bytes_is_its_text_or_a_letter(lines: list[bytes], quoted: bool) -> None:
    content = [b'"%b",%d' % (line, n) if quoted else b"%b,%d" % (line, n) for n, line in enumerate(lines)]
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder) / "f", b"\n".join([b"t,n", *content, b""]))
        rows, letters = sorted_out(CSV(folder, schema=SCHEMA))
    expected = []
    for n, line in enumerate(lines):
        with contextlib.suppress(UnicodeDecodeError):
            expected.append((line.decode() if line or quoted else None, n))
    assert rows == expected
    assert len(letters) == len(lines) - len(rows)


# On both runners


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("files", [CSV, JSONLines])
def test_bytes_that_are_no_text_are_the_same_letters_on_spark(
    files: type[CSV | JSONLines], spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    lines = ["at,user", "1,é", "2,è", "3,ok"]
    if files is JSONLines:
        lines = ['{"at": 1, "user": "\u00e9"}', r'{"at": 2, "user": "\ud800"}', '{"at": 3, "user": "ok"}']
    put(tmp_path / "rows" / "f", "\n".join(lines).encode("latin-1"))
    results = []
    for runner in (None, bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True)):
        p, out, lost = bl.Pipeline("texts"), bl.Memory(), bl.Memory()
        source = files(tmp_path / "rows", schema={"at": int, "user": str})
        watermark = bl.BoundedOutOfOrderness("1s")
        read = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
        read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).write("out", out)
        read.dead_letters().write("lost", lost)
        p.run(runner)
        results.append((out.frame()["user"].to_list(), sorted(lost.frame().rows())))
    assert results[0] == results[1]
    assert results[0][0] == ["ok"]
    assert len(results[0][1]) == 2
