"""Reads tables and queries of SQL databases into columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import attrs
import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

from beamlike.errors import PlanError, SourceError, missing_package, nearest
from beamlike.io.base import Faulty
from beamlike.io.sql.names import is_query
from beamlike.io.sql.statements import engine, shown, split_name, without_driver
from beamlike.io.sql.values import column_of, infinities, is_after_all, stored, typed
from beamlike.rows.dtypes import type_name
from beamlike.system.retries import FEW, again

_TYPES: Final[dict[type, pl.DataType]] = {
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bytes: pl.Binary(),
    date: pl.Date(),
    time: pl.Time(),
}
_DIGITS: Final = 38
_SCALE: Final = 18
_GROWING: Final = (pl.Date, pl.Datetime, pl.String)

Bound = int | str
"""A value of the growing column, in a form that JSON can hold."""


def schema_of(url: sa.URL, table: str) -> pl.Schema:
    """Returns the columns of a table or view. Raises `PlanError` if it does not exist."""
    schema, name = split_name(table)
    if url.get_backend_name() == "sqlite" and url.database and not _is_there(url.database):
        raise PlanError(f"{shown(url)} has no table {table!r}: there is no file {url.database!r}")
    with _source_errors(url, table), warnings.catch_warnings():
        # Columns of types that SQLAlchemy does not know are read as text.
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        inspector = again(f"table {table!r}", lambda: sa.inspect(engine(url)), FEW)
        try:
            columns = inspector.get_columns(name, schema or None)
        except sa.exc.NoSuchTableError:
            known = [*inspector.get_table_names(schema or None), *inspector.get_view_names(schema or None)]
            raise PlanError(f"{shown(url)} has no table {table!r}{nearest(table, known)}") from None
    return pl.Schema({column["name"]: _dtype(column["type"], inspector.dialect) for column in columns})


def _dtype(dtype: TypeEngine[Any], dialect: sa.Dialect) -> pl.DataType:
    """Returns the type in which a column is read. It is text if polars has no such type."""
    try:
        kind = dtype.python_type
    except NotImplementedError:
        return pl.String()
    if dialect.name == "sqlite" and kind in (datetime, date, time):
        return pl.String()  # SQLite stores times as text
    if kind is datetime:
        return pl.Datetime("us", "UTC" if getattr(dtype, "timezone", False) else None)
    if kind is Decimal:
        digits, scale = getattr(dtype, "precision", None), getattr(dtype, "scale", None)
        if dialect.name == "sqlite":
            return pl.Float64()
        # NUMERIC without precision has any number of digits. Spark reads it with the same type.
        return pl.Decimal(_DIGITS, _SCALE) if digits is None else pl.Decimal(min(digits, _DIGITS), scale or 0)
    return _TYPES.get(kind, pl.String())


def require_growing(column: str, dtype: pl.DataType) -> None:
    """Raises `PlanError` if the type of a column cannot be the position of a run."""
    if not (dtype.is_integer() or isinstance(dtype, _GROWING)):
        raise PlanError(
            f"Table: grows={column!r} is {type_name(dtype)}; it must be a whole number, a time or text"
        )


def _is_there(database: str) -> bool:
    """True if SQLite would open an existing database. Otherwise it would create an empty one."""
    return database == ":memory:" or database.startswith("file:") or os.path.exists(database)


@attrs.frozen
class Selection:
    """A table or a query, with the columns to read from it."""

    url: sa.URL
    table: str
    columns: pl.Schema

    def newest(self, column: str) -> Bound | None:
        """Returns the greatest value of a column; None if there are no rows."""
        asked = sa.select(sa.func.max(_named(column))).select_from(self._source)
        return self._as_bound(self._fetch(asked, [column])[column])

    def bound(
        self, column: str, above: Bound | None, upto: Bound | None, rows: int
    ) -> tuple[Bound | None, bool]:
        """Returns the upper bound of the next batch: `rows` rows in order of a column. Also returns True if more rows
        may follow.

        Raises `SourceError` if the column is null in some rows and nothing was read yet.
        """
        name, source = _named(column), self._source
        if above is None and (none := self._count(name.is_(None))):
            raise SourceError(
                f"column {column!r} of table {self.table!r} is null in {none} rows, which would never be read; leave "
                "them out with a query in place of the table"
            )
        within = sa.select(name).select_from(source).where(*self._between(column, above, upto))
        first = within.order_by(name).limit(rows).subquery()
        asked = sa.select(sa.func.max(first.columns[column]), sa.func.count().label("rows"))
        found = self._fetch(asked, [column, "rows"])
        return self._as_bound(found[column][:1]), bool(found["rows"][0] >= rows)

    def _as_bound(self, found: pl.Series) -> Bound | None:
        """Returns the single value of a column as a bound. Raises `SourceError` for a value after which reading cannot
        continue.
        """
        if (name := infinities(found)[0]) is not None:
            raise SourceError(
                f"column {found.name!r} of table {self.table!r} has the infinite time {name!r}, at which reading "
                "cannot continue; leave such rows out with a query in place of the table"
            )
        value = found[0]
        if is_after_all(value, self.columns[found.name]):
            raise SourceError(
                f"column {found.name!r} of table {self.table!r} has {value!r}, expected "
                f"{type_name(self.columns[found.name])}: it is greater than all values of that type, so later ones "
                "would never be read; leave such rows out with a query in place of the table"
            )
        return value.isoformat() if isinstance(value, date) else value

    def _count(self, condition: sa.ColumnElement[bool]) -> int:
        asked = sa.select(sa.func.count().label("rows")).select_from(self._source).where(condition)
        return int(self._fetch(asked, ["rows"])["rows"][0])

    def rows(
        self, column: str | None, above: Bound | None, upto: Bound | None
    ) -> tuple[pl.DataFrame, Faulty | None]:
        """Returns all rows, or the rows between two bounds in order of a column, and dead letters for invalid rows."""
        found = sa.select(*map(self._read, self.columns)).select_from(self._source)
        if column is not None:
            found = found.where(*self._between(column, above, upto)).order_by(_named(column))
        frame = self._fetch(found, list(self.columns))
        try:
            loose = self.url.get_backend_name() == "sqlite"  # a column may have values of any type
            return typed(frame, self.columns, f"table {self.table!r}", loose=loose)
        except pl.exceptions.PolarsError as error:
            raise SourceError(
                f"rows of {self.table!r} are not of the types {dict(self.columns)}: {error}"
            ) from None

    @property
    def _source(self) -> sa.FromClause:
        if is_query(self.table):
            # SQLAlchemy would read a colon as the start of a parameter.
            query = sa.text(self.table.rstrip().rstrip(";").replace(":", r"\:"))
            return query.columns(*map(_named, self.columns)).subquery("beamlike_rows")
        schema, name = split_name(self.table)
        return sa.table(sa.quoted_name(name, quote=True), schema=schema or None)

    def _between(
        self, column: str, above: Bound | None, upto: Bound | None
    ) -> Iterator[sa.ColumnElement[bool]]:
        name, dtype = _named(column), self.columns[column]
        if above is not None:
            yield name > _literal(above, dtype)
        if upto is not None:
            yield name <= _literal(upto, dtype)

    def _read(self, name: str) -> sa.ColumnElement[Any]:
        dtype, column = self.columns[name], _named(name)
        as_text = isinstance(dtype, pl.String | pl.Decimal) and self.url.get_backend_name() == "postgresql"
        return sa.cast(column, sa.Text()).label(sa.quoted_name(name, quote=True)) if as_text else column

    def _fetch(self, statement: Any, names: Sequence[str]) -> pl.DataFrame:
        """Executes a query. It is repeated if the connection fails, which is safe because reading changes nothing."""
        with _source_errors(self.url, self.table):
            found = again(f"table {self.table!r}", lambda: _fetch(self.url, statement))
        return found.rename(dict(zip(found.columns, names, strict=True)))


def _named(column: str) -> sa.ColumnClause[Any]:
    return sa.column(sa.quoted_name(column, quote=True))


def _literal(value: Bound, dtype: pl.DataType) -> sa.ColumnElement[Any]:
    if isinstance(dtype, pl.Datetime):
        moment = datetime.fromisoformat(str(value))
        return sa.literal(moment, sa.DateTime(timezone=dtype.time_zone is not None))
    return sa.literal(date.fromisoformat(str(value)) if dtype == pl.Date else value)


def _fetch(url: sa.URL, statement: sa.Select[Any]) -> pl.DataFrame:
    if url.get_backend_name() == "postgresql":
        return _fetch_arrow(url, statement)
    with engine(url).connect() as connection:
        found = connection.execute(statement)
        names = [f"{number}" for number, _ in enumerate(found.keys())]
        rows = found.fetchall()
        return pl.DataFrame([column_of(name, [row[at] for row in rows]) for at, name in enumerate(names)])


def _fetch_arrow(url: sa.URL, statement: sa.Select[Any]) -> pl.DataFrame:
    from adbc_driver_postgresql import dbapi

    # In other styles, percent signs would be doubled.
    compiled = statement.compile(
        dialect=postgresql.dialect(paramstyle="named"),  # type: ignore[no-untyped-call]
        compile_kwargs={"literal_binds": True},
    )
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(str(compiled))
        return pl.DataFrame(map(stored, pl.DataFrame(pl.from_arrow(cursor.fetch_arrow_table()))))


@contextmanager
def _source_errors(url: sa.URL, table: str) -> Iterator[None]:
    """Converts errors of a database to `SourceError`."""
    try:
        yield
    except (PlanError, SourceError):
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("adbc"):
            needs = "to read PostgreSQL, bl.Table needs adbc-driver-postgresql"
            raise missing_package(needs, "table", error) from None
        raise without_driver(url, error) from None
    except Exception as error:
        message = str(getattr(error, "orig", None) or error).strip()
        raise SourceError(f"{table!r} of {shown(url)} cannot be read: {message}") from None
