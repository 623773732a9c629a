"""Files are read in one order, whatever their modification times and the listing; late rows from it are reported."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Any, get_args

import pytest

import beamlike as bl
from beamlike.io.files.order import FoundFile, Order, in_order
from beamlike.io.files.paths import _under

FILES, ROWS = 20, 3


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "local":
        return bl.LocalRunner()
    session = request.getfixturevalue("spark")
    return bl.SparkRunner(str(tmp_path / "checkpoint"), session=session, shards=1, drain=True)


def put(folder: Path, times: list[int]) -> Path:
    """Writes a file for each minute, in order of name, with these modification times."""
    folder.mkdir()
    for number, time in enumerate(times):
        file = folder / f"part-{number}.csv"
        file.write_text("at\n" + "".join(f"{60 * number + row}\n" for row in range(ROWS)))
        os.utime(file, (time, time))
    return folder


def counts(folder: Path, runner: Any, **options: Any) -> tuple[list[int], Any]:
    """Runs counts of the rows of each minute, a file a batch; returns them and the run."""
    p, out = bl.Pipeline("minutes"), bl.Memory()
    source = bl.CSV(folder, schema={"at": int}, max_files_per_trigger=1, **options)
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counted = rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("counts")
    counted.write("out", out)
    run = p.run(runner)
    assert sum(sum(batch.stages["counts"].dropped.values()) for batch in run.batches) == (
        ROWS * (len(os.listdir(folder)) - len(out.frame()))
    )
    return out.frame()["n"].to_list(), run


def test_files_of_one_modification_time_are_taken_in_order_of_their_names(
    runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    panes, _ = counts(put(tmp_path / "in", [1_700_000_000] * FILES), runner)
    assert panes == [ROWS] * FILES
    assert "rows of" not in caplog.text


def test_reversed_times_drop_nothing_in_order_of_path(runner: Any, tmp_path: Path) -> None:
    times = [1_700_000_000 - number for number in range(4)]
    panes, _ = counts(put(tmp_path / "in", times), runner, order="path")
    assert panes == [ROWS] * 4


def test_where_the_order_makes_files_late_the_log_says_which_and_what_may_help(
    runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = [1_700_000_000 - number for number in range(3)]
    with caplog.at_level(logging.WARNING, logger="beamlike"):
        panes, _ = counts(put(tmp_path / "in", times), runner)
    assert panes == [ROWS]
    (told,) = (record.getMessage() for record in caplog.records if "source" in record.getMessage()[:6])
    file = tmp_path / "in" / "part-1.csv"
    assert told == (
        f"source 'rows': all 3 rows of {str(file)!r} are late: the newest is from 1970-01-01T00:01:02Z, and files that "
        "were read before have advanced the watermark to 1970-01-01T00:02:02Z; files are read in order of modification "
        "time; order='path' reads them in order of their names"
    )


def test_the_order_is_total_and_does_not_depend_on_the_listing() -> None:
    names = ["part-2", "part-02", "part-10", "a/b", "a-1/b", "a/10", "a/9", "2", "10", "b2a10", "b2a9", "b"]
    files = [FoundFile(name, number % 2, 0) for number, name in enumerate(names)]
    expected = {order: in_order(files, order) for order in get_args(Order)}
    for seed in range(20):
        random.Random(seed).shuffle(files)
        for order, wanted in expected.items():
            assert in_order(files, order) == wanted


def test_a_file_is_read_once_and_in_its_place_however_the_paths_of_a_list_spell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = put(tmp_path / "in", [1_700_000_000] * 3)
    there = put(tmp_path / "there", [1_700_000_000])
    monkeypatch.chdir(here)
    source = bl.CSV(["../there", ".", here, "../there/../in/part-1.csv", there.as_uri()], schema={"at": int})
    assert [os.path.abspath(file) for file in source.files()] == [
        *(str(here / f"part-{number}.csv") for number in range(3)),
        str(there / "part-0.csv"),
    ]


def test_a_file_that_is_gone_when_it_is_looked_at_is_passed_over(tmp_path: Path) -> None:
    found = _under(str(put(tmp_path / "in", [1_700_000_000] * 3)), ())
    first = next(found)
    for file in Path(tmp_path, "in").iterdir():
        if str(file) != first.path:
            file.unlink()
    assert list(found) == []
