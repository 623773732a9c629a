"""Operations on frames that polars lacks or does slowly: partition, concatenation, sort, size in memory, bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_VIEW: Final = 16
"""The bytes of memory for each text in addition to its content."""

_FEW: Final = 1_000
"""The number of rows up to which polars gathers rows by position faster than it filters them."""


def partition(rows: pl.DataFrame, mask: pl.Series | pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides rows into (rows for which the mask is true, other rows). The mask must have no nulls."""
    # If one part is empty, nothing is filtered: for a small frame, the overhead of each polars operation counts.
    if rows.is_empty():
        return rows, rows
    where = rows.select(mask).to_series() if isinstance(mask, pl.Expr) else mask
    count = where.sum()
    if count == len(rows):
        return rows, rows.clear()
    if count == 0:
        return rows.clear(), rows
    if len(rows) > _FEW:
        return rows.filter(where), rows.filter(~where)
    import numpy as np  # slow to import

    holds = where.to_numpy()
    return at(rows, np.flatnonzero(holds)), at(rows, np.flatnonzero(~holds))


def split(rows: pl.DataFrame, reached: pl.DataFrame, on: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides rows into (rows that equal a row of `reached` in the columns `on`, other rows)."""
    if rows.is_empty() or not on:
        return rows, rows.clear()
    hit = rows.with_row_index("__row").join(reached, on=on, how="semi", nulls_equal=True)["__row"]
    return partition(rows, pl.int_range(len(rows), eager=True, dtype=pl.UInt32).is_in(hit.implode()))


def at(rows: pl.DataFrame, positions: npt.NDArray[np.intp]) -> pl.DataFrame:
    """Gathers the rows at these positions."""
    return rows[pl.Series(positions, dtype=pl.UInt32)]


def has_nested(rows: pl.DataFrame) -> bool:
    """True if a column has lists or structs."""
    return any(dtype.is_nested() for dtype in rows.dtypes)


def rows_at(rows: pl.DataFrame, positions: npt.NDArray[np.intp]) -> pl.DataFrame:
    """Gathers the rows at these positions, which must be ascending and distinct, from a frame of several chunks."""
    # Polars gathers lists from several chunks ten times as slowly as it filters them.
    if len(positions) <= _FEW or not has_nested(rows):
        return at(rows, positions)
    import numpy as np  # slow to import

    mask = np.zeros(len(rows), np.bool_)
    mask[positions] = True
    return rows.filter(mask)


def repeated(value: pl.Series, count: int) -> pl.Series:
    """Repeats the only value of a series `count` times. Takes a tenth of the time of an expression."""
    return value.new_from_index(0, count)


def with_series(rows: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """Replaces columns of a frame by these, which have the same names, without a query."""
    changed = rows.clone()
    for column in columns:
        changed.replace_column(changed.get_column_index(column.name), column)
    return changed


def concat_nonempty(*parts: pl.DataFrame) -> pl.DataFrame:
    """Concatenates frames with the same columns, without copying if at most one has rows."""
    some = [part for part in parts if len(part)]
    return (some or [parts[0]])[0] if len(some) < 2 else pl.concat(some)


def replaced(columns: Iterable[str], new: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Returns an expression for each of `columns`: the one in `new` by this name, or the column itself."""
    return [new[name].alias(name) if name in new else pl.col(name) for name in columns]


def in_order(rows: pl.DataFrame, by: Sequence[pl.Expr], descending: Sequence[bool] = ()) -> pl.DataFrame:
    """Sorts rows by these expressions, nulls last. `descending` has a flag for each. The sort is not stable."""
    if len(rows) < 2:
        return rows
    order = rows.select(column.alias(f"{number}") for number, column in enumerate(by))
    flags = dict(zip(order.columns, descending or [False] * len(by), strict=True))
    # `nulls_last` makes a sort by several columns two to three times as slow, and constant columns cost as much as
    # others. So `nulls_last` is set only if there are nulls, and constant columns are left out.
    differing = [name for name in order.columns if not _is_constant(order[name])]
    if not differing:
        return rows
    columns = order.select(differing)
    last = any(column.null_count() for column in columns)
    places = columns.select(
        pl.arg_sort_by(differing, descending=[flags[name] for name in differing], nulls_last=last)
    )
    # A gather from a frame of several chunks is many times as slow.
    return rows.rechunk()[places.to_series()]


def _is_constant(column: pl.Series) -> bool:
    """True if an integer or Boolean column has the same value in all rows; false for columns of other types."""
    plain = column.dtype.is_integer() or column.dtype == pl.Boolean
    return plain and not column.null_count() and bool(column.min() == column.max())


def size_of(frame: pl.DataFrame) -> int:
    """Returns the approximate size of a frame in memory (bytes), with 16 bytes for each text that polars does not
    count.
    """
    views = sum(isinstance(dtype, pl.String | pl.Binary) for dtype in frame.dtypes)
    return int(frame.estimated_size()) + _VIEW * views * len(frame)


def write_stream(rows: pl.DataFrame, file: IO[bytes], **options: Any) -> None:
    """Writes rows to a file in Arrow's stream format, with options of `DataFrame.write_ipc_stream`."""
    # polars 2.1 locks the frame that it writes, and asks for Python's global lock under this lock. A thread that reads
    # the same frame has them in the other order: both wait for ever. No other thread has the clone, which has no cost.
    rows.clone().write_ipc_stream(file, **options)
