"""The files of a batch in process: a fixed number of each source, whatever their content, as on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import beamlike as bl
from beamlike.records.model import BatchRecord
from tests.end_to_end.test_random_files import SOURCES, declare, drawn, files
from tests.support.fuzz import as_texts

BAD = "no row"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(folder: Path, contents: list[list[int | str]]) -> Path:
    """Writes a file for each of these contents; a number is a row of that time."""
    folder.mkdir()
    for number, content in enumerate(contents):
        lines = [f'{{"at": {one}}}' if isinstance(one, int) else one for one in content]
        (folder / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        os.utime(folder / f"{number}.jsonl", (1_000_000_000, 1_000_000_000))
    return folder


def counted(*folders: Path) -> bl.Collection:
    """Returns the number of rows of each second, of sources with a file in each batch."""
    p = bl.Pipeline("p", max_dead_letters=10)
    sources = [
        p.read(
            folder.name,
            bl.JSONLines(folder, {"at": int}, max_files_per_trigger=1),
            timestamp="at",
            timestamp_unit="s",
            watermark=bl.MonotonousTimestamps(),
        )
        for folder in folders
    ]
    return bl.flatten(*sources).window_into(bl.FixedWindows("1s")).aggregate(n=bl.count())


def run(collection: bl.Collection) -> list[int]:
    out = bl.Memory()
    collection.write("out", out)
    collection.pipeline.run()
    return sorted(out.frame()["window_start"].dt.epoch("s").to_list())


def collected(collection: bl.Collection) -> list[int]:
    return sorted(collection.collect()["window_start"].dt.epoch("s").to_list())


@pytest.mark.parametrize("result", [run, collected])
@pytest.mark.parametrize(
    ("first", "seen"),
    [
        ([[100]], [100]),
        ([[BAD, 100]], [100]),
        ([[100, BAD]], [100]),
        ([[], [100]], [1, 100]),
        ([[BAD], [100]], [1, 100]),
        ([[BAD], [], [100]], [1, 100]),
    ],
)
def test_a_batch_takes_a_file_of_each_source(
    tmp_path: Path,
    result: Callable[[bl.Collection], list[int]],
    first: list[list[int | str]],
    seen: list[int],
) -> None:
    """The row of second 1 is late if the batch before it has advanced both sources."""
    folders = put(tmp_path / "first", first), put(tmp_path / "second", [[100], [1]])
    assert result(counted(*folders)) == seen


def test_rows_that_cannot_be_read_change_no_batch_and_no_pane(tmp_path: Path) -> None:
    given, pairs = files(tmp_path / "given"), drawn(5)
    without = tmp_path / "without"
    for file in given.glob("*/*"):
        kept = without / file.relative_to(given)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("".join(line for line in file.read_text().splitlines(True) if line.strip() != BAD))
        os.utime(kept, (1_000_000_000, 1_000_000_000))
    found = []
    for folder in (given, without):
        p, sinks = declare(folder, pairs)
        for source in SOURCES:
            del sinks[f"letters of {source}"]
        elements = list[list[int]]()

        def note(record: BatchRecord, elements: list[list[int]] = elements) -> None:
            elements.append([source.elements for source in record.sources.values()])

        p.run(bl.LocalRunner(on_batch=note))
        found.append((elements, as_texts(sinks)))
        assert len(elements) == max(SOURCES.values()) + 1
    assert found[0] == found[1]


def test_a_source_is_not_at_fault_whose_bad_rows_come_with_good_ones(tmp_path: Path) -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    source = bl.JSONLines(put(tmp_path / "rows", [[*[BAD] * 1_000, 7]]), {"at": int})
    p.read("rows", source).write("out", out)
    p.run(bl.LocalRunner(records=tmp_path / "records.jsonl"))
    assert out.rows() == [{"at": 7}]
