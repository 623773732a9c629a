"""Many small files in one batch: they become one frame, and cost as much in each format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import beamlike as bl
from tests.beamlike.io.test_sources import put

FORMATS: Final = (bl.Parquet, bl.JSONLines, bl.CSV)


def _fill(folder: Path, form: Any, count: int, below: str = "") -> None:
    frame = pl.DataFrame({"n": range(10), "at": 0})
    for number in range(count):
        file = folder / below.format(number) / f"{number:05d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        {bl.Parquet: frame.write_parquet, bl.JSONLines: frame.write_ndjson, bl.CSV: frame.write_csv}[form](
            file
        )


SCHEMAS: Final = (
    {"n": pl.Int64, "at": pl.Int64},
    {"n": pl.Int32, "at": pl.Int64},
    {"n": pl.String, "at": pl.Int64},
)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("options", [{}, {"max_files_per_trigger": 40}, {"include_file_paths": "file"}])
@pytest.mark.parametrize("below", ["", "day={}"])
@pytest.mark.parametrize("schema", [0, 1])
def test_small_files_of_a_batch_are_one_frame(
    schema: int, below: str, options: dict[str, Any], form: Any, tmp_path: Path
) -> None:
    _fill(tmp_path, form, 40, below)
    days = {"day": pl.Int64} if below else {}
    source = form(tmp_path, {**SCHEMAS[schema], **days}, **options)
    for batches in (list(source.batches(10_000)), [source.resume({}, 10_000).new()]):
        assert len(batches) == 1
    [piece] = next(source.batches(10_000)).pieces
    assert isinstance(piece.rows, pl.DataFrame)
    assert len(piece.rows) == 400
    assert piece.rows.n_chunks() == 1


def test_a_damaged_file_among_many_is_a_dead_letter_and_the_others_are_read(tmp_path: Path) -> None:
    _fill(tmp_path, bl.Parquet, 40)
    for number in range(0, 40, 4):
        file = tmp_path / f"{number:05d}"
        content = file.read_bytes()
        put(file, content[: len(content) // 2] if number % 8 else bytes(40) + content[40:])
    [batch] = bl.Parquet(tmp_path, SCHEMAS[0]).batches(10_000)
    bad, good = batch.pieces
    assert len(good.rows) == 300  # type: ignore[arg-type]
    whys = bad.rows.dead_letters["error"]  # type: ignore[union-attr]
    assert [why.partition("'")[2].partition("'")[0][-5:] for why in whys] == [
        f"{n:05d}" for n in range(0, 40, 4)
    ]
