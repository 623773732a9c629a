"""Reads whole files by the ending of their names, such as those that a sink has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl

from beamlike.errors import PlanError
from beamlike.io.files.faults import ERRORS, first_line
from beamlike.io.files.unpacking import not_packed

_READERS: Final[dict[str, Callable[..., pl.DataFrame]]] = {
    ".parquet": pl.read_parquet,
    ".csv": pl.read_csv,
    ".jsonl": pl.read_ndjson,
    ".ndjson": pl.read_ndjson,
    ".json": pl.read_ndjson,
}
_COMPRESSED: Final = (".gz", ".zst")


def files_in(folder: Path) -> list[Path]:
    """Returns the files in a folder and below it, sorted by name. Hidden files are left out."""
    return sorted(one for one in folder.rglob("*") if _is_shown(one, folder))


def read_file(file: Path, content: bytes | None = None) -> pl.DataFrame:
    """Reads a file of Parquet, CSV or JSON lines. Raises `PlanError` for another or a damaged one.

    `content` has its bytes if they are known already, unpacked.
    """
    suffix = next((one for one in reversed(file.suffixes) if one not in _COMPRESSED), "")
    if suffix not in _READERS:
        raise PlanError(f"{file} is no Parquet, CSV or JSON lines; known are {', '.join(_READERS)}")
    # Types are inferred from all rows: polars leaves out a column that begins after those that it looks at.
    is_parquet = suffix == ".parquet"
    options: dict[str, Any] = {"hive_partitioning": False} if is_parquet else {"infer_schema_length": None}
    try:
        return _READERS[suffix](file if content is None else not_packed(content, b"\n"), **options)
    except ERRORS as error:
        raise PlanError(f"{file} cannot be read: {first_line(error)}") from None


def _is_shown(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)
