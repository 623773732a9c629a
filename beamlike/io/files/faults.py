"""Dead letters for input that cannot be read as rows with the declared columns: each has its place and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from beamlike.io.base import Faulty
from beamlike.rows.dtypes import type_name
from beamlike.rows.exact import lost
from beamlike.rows.values import json_ready

ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""The errors that polars raises for invalid bytes. `OSError` is not among them, as it means a failure of the
storage.
"""

_SHOWN: Final = 80  # characters of a value in an error


def of_file(file: str, reason: str) -> Faulty:
    """Returns the dead letter for a file, or a part of it, that cannot be read at all."""
    return _faulty([f"file {file!r}: {reason}"], [json.dumps({"file": file})])


def of_lines(file: str, reason: str, lines: Sequence[bytes]) -> Faulty:
    """Returns a dead letter for each line, all with the same reason."""
    return _faulty([f"file {file!r}: {reason}"] * len(lines), list(map(decoded, lines)))


def of_each(file: str, lines: Sequence[tuple[str, bytes]]) -> Faulty:
    """Returns a dead letter for each pair of reason and line."""
    return _faulty([f"file {file!r}: {reason}" for reason, _ in lines], [decoded(line) for _, line in lines])


def of_rows(file: str, reason: str, rows: pl.Series) -> Faulty:
    """Returns a dead letter for each row, which is JSON, all with the same reason."""
    return _faulty([f"file {file!r}: {reason}"] * len(rows), rows.to_list())


def joined(faults: Iterable[Faulty]) -> Faulty | None:
    """Joins dead letters to one frame; None if there are none."""
    frames = [fault.dead_letters for fault in faults if len(fault.dead_letters)]
    return Faulty(pl.concat(frames)) if frames else None


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message. Polars adds advice in further lines."""
    return str(error).partition("\n")[0]


def decoded(line: bytes) -> str:
    r"""Returns a line as text, without its end. Invalid bytes are written as `\\xe9`."""
    return line.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def fit(raw: pl.DataFrame, typed: pl.DataFrame) -> bool:
    """True if every value in `raw` also has a value in `typed`, so that none was lost in the conversion."""
    return all(typed[name].null_count() == raw[name].null_count() for name in raw.columns)


def unfit(raw: pl.DataFrame, typed: pl.DataFrame) -> pl.Series:
    """Returns a mask of the rows in which a value of `raw` is null in `typed`, because it cannot be converted."""
    lost = [raw[name].is_not_null() & typed[name].is_null() for name in raw.columns if name in typed]
    return pl.select(pl.any_horizontal(lost)).to_series() if lost else pl.Series([False] * typed.height)


def without_lost(raw: pl.DataFrame, typed: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Replaces values that the conversion has changed by nulls. Returns the columns, and a mask of the
    affected rows.
    """
    masks = {name: lost(raw[name], typed[name]) for name in raw.columns}
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return typed, pl.repeat(False, len(typed), dtype=pl.Boolean, eager=True)
    kept = [pl.when(~mask).then(typed[name]).alias(name) for name, mask in masks.items()]
    bad = pl.select(pl.any_horizontal(list(masks.values()))).to_series()
    return typed.with_columns(kept), bad


def of_misfits(file: str, values: pl.DataFrame, typed: pl.DataFrame, rows: pl.Series) -> Faulty:
    """Returns dead letters for rows with values that could not be converted (see `unfit`).

    `values` has the columns as text, `typed` the converted columns, and `rows` each row as JSON.
    """
    errors = f"file {file!r}: " + why_unfit(values, typed)
    return Faulty(pl.DataFrame({"error": errors, "row": rows}))


def why_unfit(values: pl.DataFrame, typed: pl.DataFrame) -> pl.Series:
    """Returns, for each row, why its values could not be converted. `values` has the columns as text."""
    both = values.hstack([typed[name].alias(f"__{name}") for name in values.columns])
    whys = [_why(name, typed.schema[name]) for name in values.columns]
    return both.select(pl.concat_str(whys, separator="; ", ignore_nulls=True)).to_series()


def _why(name: str, dtype: pl.DataType) -> pl.Expr:
    text = pl.col(name)
    cut = pl.concat_str(text.str.head(_SHOWN), pl.lit("..."))
    value = pl.when(text.str.len_bytes() > _SHOWN).then(cut).otherwise(text)
    why = pl.concat_str(pl.lit(f"column {name!r} is "), value, pl.lit(f", expected {type_name(dtype)}"))
    return pl.when(text.is_not_null() & pl.col(f"__{name}").is_null()).then(why)


def shown(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the values as text. Text values are quoted."""
    return frame.select(_shown(pl.col(name), dtype).alias(name) for name, dtype in frame.schema.items())


def _shown(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype.is_nested():
        return pl.when(value.is_not_null()).then(pl.struct(json_ready(value, dtype)).struct.json_encode())
    if dtype == pl.String:
        return pl.concat_str(pl.lit("'"), value, pl.lit("'"))
    return json_ready(value, dtype).cast(pl.String)


def broken(lines: Sequence[bytes], parses: Callable[[bytes], object], start: int = 0) -> Iterator[int]:
    """Yields the indexes of the lines for which the function `parses` fails, found by bisection."""
    if not lines or not raises(lambda: parses(b"".join(lines))):
        return
    if len(lines) == 1:
        yield start
        return
    half = len(lines) // 2
    yield from broken(lines[:half], parses, start)
    yield from broken(lines[half:], parses, start + half)


def raises(reads: Callable[[], object]) -> bool:
    """Calls the function `reads`, and returns True if polars fails in it."""
    try:
        reads()
    except ERRORS:
        return True
    return False


def as_text(schema: Mapping[str, pl.DataType]) -> pl.Schema:
    """Returns the schema with all columns as text."""
    return pl.Schema(dict.fromkeys(schema, pl.String()))


def _faulty(errors: list[str], rows: list[str]) -> Faulty:
    return Faulty(pl.DataFrame({"error": errors, "row": rows}, schema={"error": pl.String, "row": pl.String}))
