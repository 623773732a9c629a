"""Writes many rows with the fastest method of a database: COPY in PostgreSQL, prepared statements elsewhere.

Rows are written in pieces, so that memory use is bounded. Values are converted by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
import sqlalchemy as sa

from beamlike.rows.values import csv_columns
from windowing.python_values import dicts_of

PIECE: Final = 50_000
"""The number of rows that are converted to Python objects together."""

WIDE: Final[dict[type[pl.DataType], int]] = {pl.UInt64: 20, pl.Int128: 39}
"""Integer types that only a decimal column can hold, each with its greatest number of digits."""

# A Python datetime or date has years from 1 to 9999.
_DAYS: Final = (-719_162, 2_932_896)
_TICKS: Final = {"ms": 86_400_000, "us": 86_400_000_000}
_MOMENT: Final = "%Y-%m-%d %H:%M:%S%.6f"


def copies(dialect: sa.Dialect) -> bool:
    """True if the database has COPY, and its driver is known."""
    return dialect.name == "postgresql" and dialect.driver == "psycopg"


def execute(connection: sa.Connection, statement: sa.Executable, rows: pl.DataFrame) -> None:
    """Executes the statement for every row. Each column is a parameter."""
    dialect = connection.dialect
    for piece in rows.iter_slices(PIECE):
        found = piece.select(ready(piece.schema, dialect))
        if dialect.name == "sqlite":
            # The values already have SQLite's form, so SQLAlchemy's conversion of each value is skipped.
            compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
            connection.exec_driver_sql(str(compiled), found.select(compiled.positiontup).rows())
        else:
            connection.execute(statement, list(dicts_of(found)))


def copy(connection: sa.Connection, table: sa.Table, rows: pl.DataFrame) -> None:
    """Copies the rows into a PostgreSQL table."""
    from psycopg.sql import SQL, Identifier

    whole_name = [name for name in (table.schema, table.name) if name]
    columns = SQL(", ").join(map(Identifier, rows.columns))
    command = SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(
        Identifier(*whole_name), columns
    )
    driver: Any = connection.connection.driver_connection
    kinds: Any = connection.dialect.loaded_dbapi
    try:
        with driver.cursor() as cursor, cursor.copy(command) as copying:
            for piece in rows.iter_slices(PIECE):
                text = piece.select(_copied(piece.schema, connection.dialect))
                # In COPY's format, an empty field is null, and two quotes are empty text.
                copying.write(text.write_csv(include_header=False, quote_style="non_numeric").encode())
    except kinds.Error as error:
        raise sa.exc.DBAPIError.instance(
            "COPY", None, error, kinds.Error, dialect=connection.dialect
        ) from None


def stage(connection: sa.Connection, table: sa.Table, name: str, rows: pl.DataFrame) -> sa.Table:
    """Creates a temporary PostgreSQL table for this transaction. Its columns have the types that they have in
    `table`.
    """
    columns = [sa.Column(column, table.columns[column].type, quote=True) for column in rows.columns]
    staged = sa.Table(name, sa.MetaData(), *columns, quote=True)
    quote = connection.dialect.identifier_preparer
    taken = ", ".join(quote.quote_identifier(column) for column in rows.columns)
    given = f"SELECT {taken} FROM {quote.format_table(table)} WITH NO DATA"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE {quote.format_table(staged)} ON COMMIT DROP AS {given}"
    )
    copy(connection, staged, rows)
    return staged


def ready(schema: Mapping[str, pl.DataType], dialect: sa.Dialect) -> Sequence[pl.Expr]:
    """Converts every column to the values of a statement's parameters.

    Times are in UTC, durations in microseconds, and nested values are JSON. A time outside the years 1 to 9999 is null,
    as in `output_frame`.
    """
    plain = csv_columns(schema)
    return [
        _ready(name, dtype, text, dialect).alias(name)
        for (name, dtype), text in zip(schema.items(), plain, strict=True)
    ]


def _ready(name: str, dtype: pl.DataType, text: pl.Expr, dialect: sa.Dialect) -> pl.Expr:
    value, as_text = pl.col(name), dialect.name == "sqlite"
    if isinstance(dtype, pl.Datetime):
        within = value if dtype.time_unit == "ns" else _within(value, _TICKS[dtype.time_unit])
        moment = within.dt.cast_time_unit("us")
        moment = moment if dtype.time_zone is None else moment.dt.convert_time_zone("UTC")
        return moment.dt.strftime(_MOMENT) if as_text else moment
    if dtype == pl.Date:
        day = _within(value, 1)
        return day.dt.strftime("%Y-%m-%d") if as_text else day
    if dtype == pl.Time:
        return value.dt.strftime("%H:%M:%S%.6f") if as_text else value
    if dtype == pl.Duration:
        return value.dt.total_microseconds()
    if dtype.is_nested():
        return text
    if as_text and (dtype.is_decimal() or type(dtype) in WIDE):
        return value.cast(pl.String)
    return value.cast(pl.String) if isinstance(dtype, pl.Categorical | pl.Enum) else value


def _copied(schema: Mapping[str, pl.DataType], dialect: sa.Dialect) -> list[pl.Expr]:
    """Converts every column to the CSV form that COPY reads."""
    return [
        _as_csv(value, schema[name]).alias(name)
        for name, value in zip(schema, ready(schema, dialect), strict=True)
    ]


def _as_csv(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        return value.dt.strftime(_MOMENT if dtype.time_zone is None else f"{_MOMENT}+00:00")
    if dtype == pl.Date:
        return value.dt.strftime("%Y-%m-%d")
    if dtype == pl.Time:
        return value.dt.strftime("%H:%M:%S%.6f")
    if dtype == pl.Binary:
        return pl.concat_str(pl.lit("\\x"), value.bin.encode("hex"))
    return value.cast(pl.String) if dtype == pl.Boolean or dtype.is_decimal() else value


def _within(value: pl.Expr, ticks: int) -> pl.Expr:
    first, last = _DAYS
    return pl.when(value.to_physical().is_between(first * ticks, (last + 1) * ticks - 1)).then(value)
