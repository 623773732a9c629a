"""Delta Lake tables as sources: first the existing rows, then each version as a batch, once; unsupported changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

import beamlike as bl
from beamlike.errors import DataLoss, MissingFiles, PlanError, SourceError
from tests.support.followed import Followed


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two versions."""
    path = str(tmp_path / "table")
    append(path, 1, 2)
    append(path, 3)
    return path


def append(path: str, *numbers: int, **columns: Any) -> None:
    rows = pl.DataFrame({"n": list(numbers)}).with_columns(**columns)
    write_deltalake(path, rows.to_arrow(), mode="append", schema_mode="merge")


def rows(source: Any) -> pl.DataFrame:
    return bl.Pipeline("p").read("rows", source).collect()


def test_a_run_begins_with_what_is_there_and_takes_each_version_as_a_batch(path: str, tmp_path: Path) -> None:
    followed = Followed(lambda: bl.Delta(path), tmp_path)
    assert followed.run() == [[1, 2, 3]]
    append(path, 4, 5)
    DeltaTable(path).optimize.compact()
    append(path, 6)
    assert followed.run() == [[1, 2, 3], [4, 5], [6]]
    assert followed.run() == [[1, 2, 3], [4, 5], [6]]


@pytest.mark.parametrize("batch", range(4))
def test_a_run_that_dies_takes_its_batch_again_and_the_others_once(
    path: str, tmp_path: Path, batch: int
) -> None:
    followed = Followed(lambda: bl.Delta(path), tmp_path)
    followed.run(dies_in=batch, rows=2)
    DeltaTable(path).optimize.compact()  # the snapshot of the run is still that of before
    append(path, 4)
    append(path, 5, 6)
    followed.run(dies_in=batch, rows=2)
    assert followed.run(rows=2) == [[1, 2], [3], [4], [5, 6]]


def test_with_a_first_version_there_is_no_snapshot(path: str, tmp_path: Path) -> None:
    append(path, 4)
    assert Followed(lambda: bl.Delta(path, start_version=1), tmp_path).run() == [[3], [4]]
    assert rows(bl.Delta(path, start_version=2))["n"].to_list() == [4]
    assert rows(bl.Delta(path, start_version=3)).is_empty()
    with pytest.raises(SourceError, match=r"'rows': the newest version .* is 2: start_version=4 would skip"):
        rows(bl.Delta(path, start_version=4))


@pytest.mark.parametrize("change", ["DELETE", "UPDATE", "WRITE"])
def test_a_version_that_changes_rows_fails_the_run_and_another_start_passes_over_it(
    path: str, tmp_path: Path, change: str
) -> None:
    followed = Followed(lambda: bl.Delta(path), tmp_path)
    followed.run()
    if change == "DELETE":
        DeltaTable(path).delete("n = 2")
    elif change == "UPDATE":
        DeltaTable(path).update(updates={"n": "7"}, predicate="n = 2")
    else:
        write_deltalake(path, pl.DataFrame({"n": [8]}).to_arrow(), mode="overwrite")
    append(path, 9)
    told = rf"version 2 of the Delta table '.*' removes or changes rows \({change}\).*start_version=3\) and a new"
    with pytest.raises(SourceError, match=told):
        followed.run()
    assert rows(bl.Delta(path, start_version=3))["n"].to_list() == [9]


def test_a_table_that_changes_is_looked_up_as_it_is(path: str) -> None:
    DeltaTable(path).delete("n = 2")
    p = bl.Pipeline("p")
    known = p.read("known", bl.Refreshed(bl.Delta(path), every="1h"))
    numbers = bl.Rows([{"n": 1}, {"n": 2}, {"n": 3}])
    asked = p.read("asked", numbers, timestamp="n", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    found = asked.with_columns(there=bl.lookup(known, on="n")["n"]).collect()
    assert found["there"].to_list() == [1, None, 3]


def test_columns_of_partitions_and_columns_that_came_later(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    values = pl.DataFrame(
        {
            "n": [1, 2],
            "text": ["a b/%20", None],
            "day": [date(2026, 1, 1), None],
            "at": [datetime(2026, 1, 1, 3, 4, 5, 678, tzinfo=UTC), None],
            "yes": [True, False],
            "count": [7, None],
        }
    )
    write_deltalake(path, values.to_arrow(), partition_by=["text", "day", "at", "yes", "count"])
    append(path, 3, more=pl.lit(0.5), text=pl.lit("a b/%20"), yes=pl.lit(False))
    expected = pl.concat(
        [values, pl.DataFrame({"n": [3], "text": ["a b/%20"], "yes": [False]})], how="diagonal"
    )
    expected = expected.with_columns(more=pl.Series([None, None, 0.5]))
    for source in (bl.Delta(path), bl.Delta(path, start_version=0)):
        found = rows(source).sort("n").select(expected.columns)
        assert found.to_dicts() == expected.to_dicts()


def test_what_was_cleaned_up_is_lost(path: str, tmp_path: Path) -> None:
    followed = Followed(lambda: bl.Delta(path), tmp_path)
    followed.run()
    append(path, 4)
    append(path, 5)
    DeltaTable(path).create_checkpoint()
    (Path(path) / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(DataLoss, match="does not have version 2 any more"):
        followed.run()


def test_a_file_that_was_vacuumed_is_lost(path: str, tmp_path: Path) -> None:
    followed = Followed(lambda: bl.Delta(path), tmp_path)
    followed.run(dies_in=0)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(DataLoss, match="is gone, as VACUUM removed it"):
        followed.run()


def test_files_that_are_not_read_as_they_are(path: str) -> None:
    DeltaTable(path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(PlanError, match=r"has deletionVectors, which bl\.Delta does not read"):
        rows(bl.Delta(path))


def test_what_cannot_be_is_said_when_it_is_declared(path: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFiles, match=r"there is no Delta table at '.*nothing'"):
        rows(bl.Delta(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="start_version must be the number of one, not -1"):
        bl.Delta(path, start_version=-1)
    with pytest.raises(
        PlanError, match="Delta: start_version= is for a source, and would have no effect in a sink"
    ):
        bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}])).write("out", bl.Delta(path, start_version=1))
