"""Hive partition folders: in `date=2026-01-01/country=de/part.parquet`, folder names contain columns and
their values.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import polars as pl

from beamlike.errors import PlanError, WrongType, unknown_column
from beamlike.io.base import AnyFrame, Faulty, Unreadable
from beamlike.io.files.faults import of_rows
from beamlike.io.files.paths import LONGEST_NAME, is_hidden
from beamlike.rows.dtypes import type_name
from beamlike.rows.values import csv_columns, from_text, reads_natively, row_json

_LOG = logging.getLogger("beamlike")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
"""The characters that Hive and Spark escape in folder names. Others, such as umlauts, are not escaped."""

_LONGEST_COLUMN: Final = 200
"""The greatest length of a column name in a folder name, in bytes. It leaves room for a part of the value."""

_SHORTENED: Final = re.compile(r"=.*~[0-9a-f]{16}$", re.DOTALL)
_CUT_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
_DIGEST: Final = 17
"""The length of a tilde and the digest, which end the name for a value that is too long."""

_BOOLEANS: Final = {"true": True, "false": False}

Piece = tuple[AnyFrame | Faulty, int]
"""Rows or dead letters of a file, with their number."""


def column_names(columns: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of partition columns, given as a text or several texts."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def values_of(file: str) -> dict[str, str | None]:
    """Returns the columns in the folder names of a path, with their values as text. The last folder with a name counts.

    Shortened values are skipped, because the file itself then has the column.
    """
    folders = [folder for folder in file.split("/")[:-1] if not _is_shortened(folder)]
    pairs = [folder.split("=", 1) for folder in folders if folder.find("=") > 0]
    return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}


def added(
    pieces: Iterator[Piece], file: str, schema: pl.Schema, values: Mapping[str, str | None]
) -> Iterator[Piece]:
    """Adds the columns of folder names to the pieces of a file, in the order of the schema.

    If a value does not fit the type of its column, all rows are dead letters.
    """
    columns, wrong = list[pl.Series](), list[str]()
    for name, text in values.items():
        column = _typed(text, schema[name]).alias(name)
        columns.append(column)
        if text is not None and column[0] is None:
            wrong.append(f"the folder {name!r} is {text!r}, expected {type_name(schema[name])}")
    for piece, count in pieces:
        if isinstance(piece, Faulty):
            yield piece, count
        elif wrong:
            try:
                rows = piece.lazy().collect()
                yield of_rows(file, "; ".join(wrong), rows.select(row_json(rows.schema)).to_series()), count
            except Unreadable as error:
                yield error.faulty, count
        else:
            literals = [pl.lit(column.item(), column.dtype).alias(column.name) for column in columns]
            yield piece.with_columns(literals).select(schema.names()), count


def _typed(text: str | None, dtype: pl.DataType) -> pl.Series:
    given = pl.Series([text], dtype=pl.String)
    if dtype == pl.Boolean:
        return pl.Series([None if text is None else _BOOLEANS.get(text.lower())], dtype=pl.Boolean)
    if reads_natively(dtype) and not dtype.is_float():
        return given.cast(dtype, strict=False)
    return given.to_frame("").select(from_text(pl.col(""), dtype)).to_series()


def require_columns(columns: tuple[str, ...], schema: pl.Schema, step: str) -> None:
    """Raises `PlanError` if rows with this schema cannot be partitioned by these columns."""
    for at, name in enumerate(columns):
        if name not in schema:
            raise unknown_column(name, schema, step)
        if name in columns[:at]:
            raise PlanError(f"partition_by: column {name!r} is named twice", step=step)
        if schema[name].is_nested() or schema[name] in (pl.Binary, pl.Duration, pl.Object):
            what = f"partition_by: column {name!r} is {type_name(schema[name])}, which cannot name a folder"
            raise WrongType(what, step=step)
        if len(_escaped(name).encode()) > _LONGEST_COLUMN:
            what = f"partition_by: the name of column {name[:40]!r}... is too long for the name of a folder; rename it"
            raise PlanError(what, step=step)
        if is_hidden(name):
            what = f"partition_by: readers skip folders that begin like {name!r} does; rename the column"
            raise PlanError(what, step=step)
    if len(columns) == len(schema):
        raise PlanError("partition_by: takes all columns, and leaves none for the files", step=step)


def split(frame: pl.DataFrame, columns: tuple[str, ...]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yields pairs of folder and rows. The rows lack the columns that the folder name contains.

    Empty text, and text equal to Hive's name for null, become null, as in Hive. A value that is too long for a folder
    name is shortened there, and its column stays in the file.
    """
    by = frame.select(columns)
    texts = by.select(csv_columns(by.schema)).cast(pl.String)
    texts = texts.with_columns(pl.all().replace(dict.fromkeys(("", _NULL))))
    # No user's column begins with a zero byte, so the renamed columns do not collide.
    marks = {name: f"\0{name}" for name in columns}
    groups = frame.hstack(texts.rename(marks)).partition_by(*marks.values(), as_dict=True, include_key=False)
    for values, rows in groups.items():
        whole = [folder(name, value) for name, value in zip(columns, values, strict=True)]
        names = [_shortened(one) if _is_too_long(one) else one for one in whole]
        named = [name for name, one, short in zip(columns, whole, names, strict=True) if one == short]
        if len(named) < len(columns):
            _warn_long(tuple(name for name in columns if name not in named))
        yield "/".join(names), rows.drop(named)


@functools.cache
def _warn_long(columns: tuple[str, ...]) -> None:
    """Logs once per process that folder names have shortened values of these columns."""
    shown = ", ".join(map(repr, columns))
    _LOG.warning(
        "partition_by: %s has values that are too long for the name of a folder. They are shortened there, with a "
        "digest, and the files keep the column: beamlike reads it from them, other readers may not",
        shown,
    )


def folder(name: str, value: object) -> str:
    """Returns the folder name for a value of a column, which may be null, before any shortening."""
    return f"{_escaped(name)}={_escaped(str(value)) if value is not None else _NULL}"


def _is_too_long(whole: str) -> bool:
    """True if file systems would refuse the name, or if it looks like a shortened name."""
    return len(whole.encode()) > LONGEST_NAME or _is_shortened(whole)


def _is_shortened(whole: str) -> bool:
    # A shortened name may end up to five bytes early, where cutting would have split an escape or a
    # character.
    return len(whole.encode()) > LONGEST_NAME - 6 and _SHORTENED.search(whole) is not None


def _shortened(whole: str) -> str:
    """Returns the beginning of a name with a digest of the whole name, so that different values have
    different names.
    """
    digest = hashlib.sha256(whole.encode()).hexdigest()[: _DIGEST - 1]
    start = whole.encode()[: LONGEST_NAME - _DIGEST].decode(errors="ignore")
    return f"{_CUT_ESCAPE.sub('', start)}~{digest}"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
