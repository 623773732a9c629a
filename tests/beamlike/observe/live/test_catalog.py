"""The list of runs and savepoints: those below the paths that a user names, and the cached part."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest

import beamlike as bl
from beamlike.api.savepoint import save
from beamlike.observe.live import catalog as catalogs
from beamlike.observe.live.catalog import Catalog
from beamlike.records.history import History
from beamlike.records.lines import RunBegun, line_text
from tests.beamlike.observe.live.places import append, write_run
from tests.support.simulated import flagship


def test_runs_are_found_by_file_by_folder_and_by_checkpoint(tmp_path: Path) -> None:
    history = flagship(held=False)
    plain = write_run(tmp_path / "a.jsonl", history)
    write_run(tmp_path / "below" / "beamlike" / "records.jsonl", history)
    (tmp_path / "other.jsonl").write_text("no run\n")
    names = [entry.name for entry in Catalog.of([tmp_path]).entries()]
    assert names == [str(plain), str(tmp_path / "below")]
    assert [one.path for one in Catalog.of([plain]).entries()] == [str(plain)]
    assert [one.name for one in Catalog.of([tmp_path / "below"]).entries()] == [str(tmp_path / "below")]


def test_a_run_that_is_named_twice_is_listed_once(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "a.jsonl", flagship(held=False))
    assert len(Catalog.of([tmp_path, plain, tmp_path]).entries()) == 1


def test_a_place_that_does_not_exist_is_an_error_with_the_nearest_run(tmp_path: Path) -> None:
    write_run(tmp_path / "plays.jsonl", flagship(held=False))
    with pytest.raises(FileNotFoundError, match=r"plays\.jsonl"):
        Catalog.of([tmp_path / "play.jsonl"])


def test_a_run_that_begins_later_is_listed_and_one_that_is_removed_is_not(tmp_path: Path) -> None:
    catalog = Catalog.of([tmp_path])
    assert catalog.entries() == []
    path = write_run(tmp_path / "new.jsonl", flagship(held=False))
    (entry,) = catalog.entries()
    assert catalog.entry(entry.id) == entry
    path.unlink()
    assert catalog.entry(entry.id) is None


def test_only_the_last_histories_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "_MOST_OPEN", 2)
    for name in "abc":
        write_run(tmp_path / f"{name}.jsonl", flagship(held=False, batches=3))
    catalog = Catalog.of([tmp_path])
    first, second, third = catalog.entries()
    opened = catalog.opened(first)
    assert catalog.opened(first) is opened
    catalog.opened(second)
    catalog.opened(third)
    assert catalog.opened(first) is not opened


def test_a_result_is_made_once_for_each_version(tmp_path: Path) -> None:
    history = flagship(held=False, batches=4, ended=False)
    last = history.batches.pop()
    path = write_run(tmp_path / "a.jsonl", history)
    catalog = Catalog.of([path])
    run = catalog.opened(catalog.entries()[0])
    made: list[int] = []
    for _ in range(2):
        run.refresh()
        run.once("batches", lambda history: made.append(len(history.batches)))
        run.once("seldom", lambda history: made.append(-len(history.batches)), seconds=1e9)
    append(path, last)
    run.refresh()
    run.once("batches", lambda history: made.append(len(history.batches)))
    run.once("seldom", lambda history: made.append(-len(history.batches)), seconds=1e9)
    assert made == [3, -3, 4]


def test_savepoints_are_listed_with_the_run_that_they_are_of(tmp_path: Path) -> None:
    p = bl.Pipeline("totals")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"at": "2026-01-01T12:00:00Z", "n": 1}\n')
    rows = p.read(
        "plays",
        bl.JSONLines(tmp_path / "in", {"at": str, "n": int}),
        timestamp="at",
        watermark=bl.BoundedOutOfOrderness("1s"),
    )
    rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.sum("n")).write(
        "out", bl.Parquet(tmp_path / "out")
    )
    p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))
    save(str(tmp_path / "checkpoint"), str(tmp_path / "saved"))
    shutil.copytree(tmp_path / "saved", tmp_path / "damaged")
    (tmp_path / "damaged" / "savepoint.json").write_text("{")
    (found,) = Catalog.of([tmp_path]).savepoints()
    assert (found.path, found.pipeline, found.batch) == (str(tmp_path / "saved"), "totals", 0)


@pytest.mark.parametrize("closed", [None, "ended", "failed"])
@pytest.mark.parametrize("batches", [0, 1, 60])
def test_the_end_of_a_run_is_what_the_whole_history_says(
    tmp_path: Path, closed: str | None, batches: int
) -> None:
    history = attrs.evolve(flagship(held=True, batches=max(batches, 1), ended=False), closed=closed)
    if not batches:
        history.batches.clear()
    path = write_run(tmp_path / "a.jsonl", history)
    whole, end = History.open(path), History.end_of(path)
    assert (end.plan, end.latest, end.closed) == (whole.plan, whole.latest, whole.closed)
    assert len(end.batches) == min(batches, 1)


def test_the_end_of_a_run_whose_first_line_is_damaged_is_read_from_the_whole(tmp_path: Path) -> None:
    history = flagship(held=True, batches=3)
    path = write_run(tmp_path / "a.jsonl", history)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([b'{"plan": 3}\n', line_text(RunBegun(history.plan)), *lines[1:]]))
    assert History.end_of(path).latest == history.latest
