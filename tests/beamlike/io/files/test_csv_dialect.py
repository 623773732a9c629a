"""CSV in other dialects: delimiters, quotes, files without a header; every line of it is accounted for."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import CSV, Part
from tests.beamlike.io.test_sources import put, sorted_out

SCHEMA = {"n": int, "t": str}
FRAME = pl.DataFrame({"n": [1, None, 3], "t": ["a;b", "x\"y'z", None], "u": [0.5, 1.5, None]})


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";"},
        {"delimiter": "\t", "quote": "'"},
        {"header": False, "schema": {"n": int, "t": str, "u": float}},
        {"header": False, "delimiter": "|", "quote": None, "schema": {"n": int, "t": str, "u": float}},
    ],
)
def test_what_is_written_with_options_is_read_with_them(options: dict[str, Any], tmp_path: Path) -> None:
    CSV(tmp_path, **options).write(FRAME, Part("q", 0))
    (file,) = tmp_path.iterdir()
    first = file.read_text().splitlines()[0]
    assert first == options.get("delimiter", ",").join(
        "ntu" if options.get("header", True) else ["1", "a;b", "0.5"]
    )
    assert sorted_out(CSV(tmp_path, **options)) == (FRAME.rows(), [])


def test_the_columns_of_a_file_without_header_are_those_of_the_schema_in_order(tmp_path: Path) -> None:
    put(tmp_path / "f", "1,a\n\n2\nx,b\n3,c,4\n,\n5,d")
    found, letters = sorted_out(CSV(tmp_path, schema=SCHEMA, header=False))
    assert found == [(1, "a"), (2, None), (None, None), (5, "d")]
    assert letters == [
        ("f: more fields than the 2 of the schema", "3,c,4"),
        ("f: column 'n' is 'x', expected Int64", '{"n":"x","t":"b"}'),
    ]
    with pytest.raises(ValueError, match=r"with header=False the columns are needed: .*schema="):
        CSV(tmp_path, header=False).schema()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("n;t\n1;a\n\n2;b\n", "it has one column, 'n;t': is the delimiter ';'?"),
        ("n\tt:x\n1;a\r\n2;b\n", "it has one column, 'n\\tt:x': is the delimiter '\\t'?"),
        ("0,x\n1,a\n2,b", "it has '0', 'x': is there no header (header=False)?"),
        ("N\n1\n2\n", "it has 'N': names must agree in case and blanks, too"),
        ("m, t\n1,a\n2,b\n", "it has 'm', ' t': names must agree in case and blanks, too"),
    ],
)
def test_a_file_with_none_of_the_columns_is_a_letter_a_line(text: str, hint: str, tmp_path: Path) -> None:
    put(tmp_path / "f", text)
    put(tmp_path / "g", "n,t\n7,x\n")
    found, letters = sorted_out(CSV(tmp_path, schema=SCHEMA))
    assert found == [(7, "x")]
    why = f"f: the header has none of the columns 'n', 't'; {hint}"
    assert letters == [(why, line) for line in text.split()[-2:]]


def test_a_column_that_some_files_lack_is_null_there_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "f", "n\n1\n\n2\n")  # of a single column, an empty line is a null
    put(tmp_path / "g", "n\n3\n")
    assert sorted_out(CSV(tmp_path, schema=SCHEMA))[0] == [(1, None), (None, None), (2, None), (3, None)]
    told = f"{str(tmp_path)!r} has files without the declared columns 't': they are null there"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_the_folder_of_a_file_that_lacks_a_column_is_told_for_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "f", "n\n1\n")
    assert sorted_out(CSV("f", schema={"n": int, "elsewhere": str}))[0] == [(1, None)]
    assert "'.' has files without the declared columns 'elsewhere'" in caplog.text


def test_lines_that_end_with_cr_alone_are_not_taken_for_a_header(tmp_path: Path) -> None:
    put(tmp_path / "f", "n,t\r1,a\r2,b\r")
    put(tmp_path / "g", '"n\r",n\nx,5\n')
    found, letters = sorted_out(CSV(tmp_path, schema={"n": int}))
    assert found == [(5,)]
    why = "f: its lines end with CR alone, where LF or CR LF is expected"
    assert letters == [(why, json.dumps({"file": str(tmp_path / "f")}))]


def test_without_quotes_every_character_is_itself_and_what_ends_a_value_is_not_written(
    tmp_path: Path,
) -> None:
    put(tmp_path / "f", 'n\tt\n1\t"open\n2\tsay "x"\n')
    source = CSV(tmp_path, schema=SCHEMA, delimiter="\t", quote=None)
    assert sorted_out(source) == ([(1, '"open'), (2, 'say "x"')], [])
    for value in ("a\tb", "a\nb"):
        with pytest.raises(
            ValueError, match=r"column 't' has 'a.*b', which cannot be written without quotes"
        ):
            source.write(pl.DataFrame({"n": [1], "t": [value]}), Part("q", 0))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delimiter": "||"}, "CSV: delimiter must be one ASCII character, not '||'"),
        ({"delimiter": "\n"}, "CSV: delimiter must be one ASCII character, not '\\n'"),
        ({"delimiter": "-"}, "CSV: delimiter must not be '-', which is a part of numbers or words"),
        ({"delimiter": "1"}, "CSV: delimiter must not be '1'"),
        ({"quote": ""}, "CSV: quote must be one ASCII character, not ''"),
        ({"delimiter": "'", "quote": "'"}, "CSV: delimiter and quote must differ"),
        ({"header": 0}, "CSV: header must be True (the first line names the columns) or False, not 0"),
    ],
)
def test_options_are_checked_when_they_are_declared(options: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        bl.CSV("data", **options)


_LINE = st.text(st.sampled_from("1a,;' "), max_size=5)
_STRAY = st.none() | st.sampled_from(['"', '1,"a', '1"', '"1"a,x', '1,"a"'])


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(_LINE), _STRAY, st.sampled_from(["n,t", "n", "t,n,x", "a,b", "n;t"]), st.booleans())
def test_every_line_is_a_row_a_letter_or_blank(
    lines: list[str], stray: str | None, header: str, has_header: bool
) -> None:
    lines.insert(len(lines) // 2, stray or "")
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder) / "f", "\n".join([header, *lines] if has_header else lines) + "\n")
        found, letters = sorted_out(CSV(folder, schema=SCHEMA, header=has_header))
    single = has_header and header == "n"
    assert len(found) + len(letters) == sum(single or bool(line) for line in lines)
