"""Control commands and lists of files in a checkpoint: their text is the same in every version."""

from __future__ import annotations

import json

import pytest

from beamlike.spark.checkpoint.commands import (
    ControlCommand,
    EndSources,
    PlayStep,
    command_text,
    read_command,
)
from beamlike.spark.query.listing import Entry, FilePart, KnownFiles, read_entry
from beamlike.system.seals import NotAsWritten, sealed_lines


@pytest.mark.parametrize(
    ("text", "order"),
    [('{"end": ["console", "mobile"]}', EndSources(("console", "mobile"))), ('{"step": 3}', PlayStep(3))],
)
def test_an_order_has_its_text(text: str, order: ControlCommand) -> None:
    written = command_text(order, "tick-3.json")
    assert written.startswith(text[:-1])
    assert read_command(written) == (order, "control/tick-3.json")
    with pytest.raises(NotAsWritten, match="a file in beamlike/control is not what was written"):
        read_command(written.replace("mobile", "mobild").replace("3,", "2,"))


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ('{"file": "/in/a.csv", "number": 7, "parts": 2, "part": 1}', FilePart("/in/a.csv", 7, 2, 1)),
        ('{"file": "/in/a.csv", "number": 7}', FilePart("/in/a.csv", 7)),
        ('{"known": ["/in/a.csv", "/in/b.csv"]}', KnownFiles(("/in/a.csv", "/in/b.csv"))),
    ],
)
def test_a_line_of_a_list_is_read(line: str, entry: Entry) -> None:
    written = sealed_lines([json.loads(line), json.loads(line)], "files/a/0.json").splitlines()
    assert {read_entry(one) for one in written} == {(entry, "files/a/0.json", 2)}


@pytest.mark.parametrize("line", [b'{"end": ["mobil', b'{"end": ["mob\xe9le"]}', b""])
def test_a_line_that_is_not_json_is_not_as_written(line: bytes) -> None:
    with pytest.raises(
        NotAsWritten, match="a file in beamlike/control is not what was written: it is not JSON"
    ):
        read_command(line)
    with pytest.raises(NotAsWritten, match=r"a line in beamlike/files .*: it is not JSON"):
        read_entry(line)


@pytest.mark.parametrize("line", ['{"file": "/in/a', "7", "null", '{"name": "/in/a.csv"}'])
def test_a_line_that_is_none_of_a_list_is_an_error(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_entry(line)
