"""Tables of SQL databases: their types and checks, and statements that insert, replace and delete rows in bulk."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, Final

import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.types import TypeEngine

from beamlike.errors import MissingPackage, nearest
from beamlike.io.sql import bulk, texts
from beamlike.io.sql.bulk import WIDE
from beamlike.rows.dtypes import type_name

Columns = Mapping[str, TypeEngine[Any]]

_PATIENCE: Final = 60  # seconds
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_PORTS: Final[dict[str, int]] = {
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "mssql": 1433,
    "oracle": 1521,
}
_SCHEMAS: Final = {"sqlite": "main", "postgresql": "public", "mssql": "dbo"}

_WHOLE: Final[dict[type[pl.DataType], type[sa.Integer]]] = {
    pl.Int8: sa.SmallInteger,
    pl.Int16: sa.SmallInteger,
    pl.Int32: sa.Integer,
    pl.Int64: sa.BigInteger,
    pl.UInt8: sa.SmallInteger,
    pl.UInt16: sa.Integer,
    pl.UInt32: sa.BigInteger,
}
_HOLDS: Final[dict[type, set[type]]] = {
    bool: {bool, int},
    int: {int, float, Decimal},
    float: {float, Decimal},
    datetime: {datetime},
    date: {date},
    time: {time},
    Decimal: {Decimal},
    bytes: {bytes},
    str: {str},
}
"""For each Python type of values, the Python types of columns that can hold them."""


def engine(url: sa.URL) -> sa.Engine:
    """Returns the engine of a database. Connections last for one transaction only, as hours may pass between
    batches.
    """
    name = url.database or ""
    if url.get_backend_name() == "sqlite" and not name.startswith("file:"):
        # Engines are cached, and the working directory may change.
        url = url.set(database=os.path.abspath(name))
    return _engine(url)


@functools.lru_cache
def _engine(url: sa.URL) -> sa.Engine:
    # SQLite allows one writer at a time. Others wait up to this timeout.
    waits = {"timeout": _PATIENCE} if url.get_backend_name() == "sqlite" else {}
    return sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True, connect_args=waits)


_DRIVERS: Final = {"postgresql": ("psycopg", "psycopg2"), "mysql": ("pymysql",)}
"""The drivers of each database. A driver's name in SQLAlchemy is also the name of its module."""
_PACKAGES: Final = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}
"""The packages of driver modules that have another name than the module."""


def without_driver(url: sa.URL, error: ModuleNotFoundError, step: str | None = None) -> MissingPackage:
    """Returns the error for a database whose driver is not installed."""
    name = error.name or ""
    there = [driver for driver in _DRIVERS.get(url.get_backend_name(), ()) if find_spec(driver) is not None]
    other = (
        f", or write the url as {url.get_backend_name()}+{there[0]}://..., which is there" if there else ""
    )
    return MissingPackage(
        f"{url.drivername!r} needs the module {name!r}: pip install {_PACKAGES.get(name, name)!r}{other}",
        step=step,
        name=name,
    )


def shown(url: sa.URL) -> str:
    """Returns the URL without user, password and options, for messages."""
    # SQLAlchemy ends a password at an unquoted @. The rest of the password would be part of the host.
    host = url.host and url.host.rpartition("@")[2]
    return str(sa.URL.create(url.drivername, host=host, port=url.port, database=url.database))


def place_of(url: sa.URL, table: str) -> tuple[str, ...]:
    """Returns kind of database, host, port, database, schema and table. The result is equal for different spellings.

    Paths are made absolute. This machine, the default port and the default schema are each written in one way. Aliases
    of a server, and views, are not resolved.
    """
    kind, (schema, name) = url.get_backend_name(), split_name(table)
    schema = schema or _SCHEMAS.get(kind, "")
    if kind == "sqlite":
        path = os.path.realpath(str(url.database).removeprefix("file:"))
        return kind, path, schema.casefold(), name.casefold()
    host = str(url.query.get("host") or url.host or "localhost")
    port = url.port or _PORTS.get(kind)
    where = ("localhost" if host in _HERE else host, str(port))
    if kind in ("mysql", "mariadb"):
        return "mysql", *where, schema or str(url.database), name
    return kind, *where, str(url.database), schema, name


# Types


def column_types(schema: Mapping[str, pl.DataType], key: Collection[str] = ()) -> Columns:
    """Returns the SQL type of every column. Columns in `key` can be indexed. Raises `TypeError` for a type that SQL
    lacks.
    """
    return {name: _column_type(name, dtype, name in key) for name, dtype in schema.items()}


def _column_type(name: str, dtype: pl.DataType, key: bool) -> TypeEngine[Any]:
    if found := _WHOLE.get(type(dtype)):
        return found()
    if digits := WIDE.get(type(dtype)):
        return _decimal(digits, 0)
    match dtype:
        case pl.Decimal():
            return _decimal(dtype.precision or 38, dtype.scale)
        case pl.Float32() | pl.Float64():
            return sa.Double()
        case pl.Boolean():
            return sa.Boolean()
        case pl.String() | pl.Categorical() | pl.Enum() | pl.Null():
            return texts.key_text() if key else texts.text()
        case pl.Datetime():
            moment = sa.DateTime(timezone=dtype.time_zone is not None)
            # By default, MySQL's times have whole seconds only.
            return moment.with_variant(mysql.DATETIME(fsp=6), *texts.MYSQL)
        case pl.Date():
            return sa.Date()
        case pl.Time():
            return sa.Time().with_variant(mysql.TIME(fsp=6), *texts.MYSQL)
        case pl.Duration():
            return sa.BigInteger()
        case pl.Binary():
            return texts.binary()
    if dtype.is_nested():
        return texts.text().with_variant(postgresql.JSONB(), "postgresql")
    raise TypeError(f"column {name!r} is {type_name(dtype)}, which no table can hold")


def _decimal(digits: int, scale: int) -> TypeEngine[Any]:
    # SQLite has no decimals, and would round them to floats.
    return sa.Numeric(digits, scale).with_variant(sa.Text(), "sqlite")


# Definitions of tables


def split_name(name: str) -> tuple[str, str]:
    """Splits a name into schema, which may be empty, and table name, at the last dot that is not in double quotes."""
    quoted = re.fullmatch(r'(?:(.+)\.)?("(?:[^"]|"")+")', name, re.DOTALL)
    schema, plain = quoted.groups("") if quoted else name.rpartition(".")[::2]
    return _unquoted(schema), _unquoted(plain)


def _unquoted(name: str) -> str:
    quoted = re.fullmatch(r'"((?:[^"]|"")+)"', name, re.DOTALL)
    return sa.quoted_name(quoted[1].replace('""', '"'), quote=True) if quoted else name


def unknown_schema(connection: sa.Connection, table: sa.Table) -> str | None:
    """Returns the reason why the schema of a table does not exist; None if it exists.

    Names with dots that the database resolves itself are not checked.
    """
    schema = table.schema
    if schema is None or ("." in schema and not isinstance(schema, sa.quoted_name)):
        return None
    known = sa.inspect(connection).get_schema_names()
    if schema.casefold() in map(str.casefold, known):
        return None
    advice = f"a table with a dot in its name is written in quotes, '\"{schema}.{table.name}\"'"
    return f"the database has no schema {schema!r}{nearest(schema, known)}; {advice}"


def table_of(name: str, types: Columns, key: Sequence[str] = ()) -> sa.Table:
    """Returns the table named `table` or `schema.table`, with a unique constraint on `key`."""
    schema, plain = split_name(name)
    # All names are quoted, because no list of reserved words is complete.
    columns = [sa.Column(column, dtype, quote=True) for column, dtype in types.items()]
    unique = [sa.UniqueConstraint(*key)] if key else []
    return sa.Table(plain, sa.MetaData(), *columns, *unique, schema=schema or None, quote=True)


def as_found(connection: sa.Connection, table: sa.Table) -> sa.Table:
    """Returns the table with only those columns that exist in the database."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name, table.schema)}
    columns = [
        sa.Column(name, column.type, quote=True) for name, column in table.columns.items() if name in there
    ]
    return sa.Table(table.name, sa.MetaData(), *columns, schema=table.schema, quote=True)


def misfits(
    connection: sa.Connection, table: sa.Table, required: Collection[str], key: Sequence[str]
) -> Iterator[str]:
    """Yields reasons why the existing table cannot store rows of `table`.

    Only the columns in `required` must exist.
    """
    inspector = sa.inspect(connection)
    found = {column["name"]: column for column in inspector.get_columns(table.name, table.schema)}
    for name, column in table.columns.items():
        expected = _sql(column.type, connection.dialect)
        if name not in found:
            if name in required:
                yield f"it has no column {name!r} ({expected})"
        elif not _fits(column.type, found[name]["type"], connection.dialect):
            yield f"column {name!r} is {_sql(found[name]['type'], connection.dialect)}, not {expected}"
    for name, there in found.items():
        if name not in table.columns and not there["nullable"] and _is_unfilled(there):
            yield f"its column {name!r} must not be null and has no default, and no such column is written"
    if key and is_upserting(connection.dialect) and set(key) not in _unique(inspector, table):
        yield f"it has no unique constraint on ({', '.join(key)}), by which rows replace each other"


def _is_unfilled(column: Any) -> bool:
    by_itself = column.get("autoincrement") is True or column.get("identity") or column.get("computed")
    return column.get("default") is None and not by_itself


def _unique(inspector: sa.Inspector, table: sa.Table) -> list[set[str]]:
    where = (table.name, table.schema)
    found = [inspector.get_pk_constraint(*where)["constrained_columns"]]
    found += [constraint["column_names"] for constraint in inspector.get_unique_constraints(*where)]
    # SQLAlchemy cannot read all constraints of SQLite, but SQLite's automatic indexes have their columns.
    own: Any = {"include_auto_indexes": True} if inspector.dialect.name == "sqlite" else {}
    indexes = (index for index in inspector.get_indexes(*where, **own) if index["unique"])
    found += [[name or "" for name in index["column_names"]] for index in indexes if not _is_partial(index)]
    return [set(columns) for columns in found]


def _is_partial(index: Any) -> bool:
    options = index.get("dialect_options", {})
    return any(name.endswith("_where") and value is not None for name, value in options.items())


def _fits(ours: TypeEngine[Any], theirs: TypeEngine[Any], dialect: sa.Dialect) -> bool:
    """True if a column of type `theirs` can hold values of type `ours`."""
    ours = ours.dialect_impl(dialect)
    if isinstance(ours, sa.JSON):
        return isinstance(theirs, sa.JSON)
    if dialect.name == "postgresql" and isinstance(ours, sa.DateTime):
        # Without a zone, the server would convert times to its own zone.
        return isinstance(theirs, sa.DateTime) and ours.timezone == theirs.timezone
    kind, found = _python_type(ours), _python_type(theirs)
    as_text = dialect.name == "sqlite" and kind in (datetime, date, time)  # SQLite stores times as text
    return found is object or found in _HOLDS[kind] or (as_text and found is str)


def _python_type(dtype: TypeEngine[Any]) -> type:
    """Returns the Python type of a column; `object` if SQLAlchemy does not know the type."""
    try:
        return dtype.python_type
    except NotImplementedError:
        return object


def _sql(dtype: TypeEngine[Any], dialect: sa.Dialect) -> str:
    try:
        return dtype.compile(dialect)
    except sa.exc.CompileError:
        return "of a type that SQLAlchemy does not know"


# Statements


def is_upserting(dialect: sa.Dialect) -> bool:
    """True if the database has INSERT ... ON CONFLICT DO UPDATE. In others, rows are deleted and inserted."""
    return dialect.name in ("sqlite", "postgresql")


def insert(connection: sa.Connection, table: sa.Table, rows: pl.DataFrame) -> None:
    """Inserts the rows."""
    if rows.is_empty():
        return
    if bulk.copies(connection.dialect):
        bulk.copy(connection, table, rows)
    else:
        bulk.execute(connection, table.insert().values(_given(table, rows, connection.dialect)), rows)


def upsert(connection: sa.Connection, table: sa.Table, key: Sequence[str], rows: pl.DataFrame) -> None:
    """Inserts the rows. They replace existing rows with the same key. The keys of `rows` must be unique."""
    if is_upserting(connection.dialect):
        # For a unique constraint, two nulls are different, so rows with nulls are replaced in another way.
        with_null = pl.any_horizontal(pl.col(key).is_null())
        _upsert_natively(connection, table, key, rows.filter(~with_null))
        rows = rows.filter(with_null)
    delete(connection, table, key, rows)
    insert(connection, table, rows)


def _upsert_natively(
    connection: sa.Connection, table: sa.Table, key: Sequence[str], rows: pl.DataFrame
) -> None:
    if rows.is_empty():
        return
    if not bulk.copies(connection.dialect):
        given = (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table)
        given = given.values(_given(table, rows, connection.dialect))
        bulk.execute(connection, _replacing(given, key, rows.columns), rows)
        return
    staged = bulk.stage(connection, table, "beamlike_rows", rows)
    given = postgresql.insert(table).from_select(rows.columns, sa.select(staged))
    connection.execute(_replacing(given, key, rows.columns))


def _replacing(
    statement: postgresql.Insert | sqlite.Insert, key: Sequence[str], columns: Sequence[str]
) -> postgresql.Insert | sqlite.Insert:
    """Returns the insert statement, extended so that a row replaces an existing row with the same key."""
    others = {name: statement.excluded[name] for name in columns if name not in key}
    if others:
        return statement.on_conflict_do_update(index_elements=list(key), set_=others)
    return statement.on_conflict_do_nothing(index_elements=list(key))


def delete(connection: sa.Connection, table: sa.Table, key: Sequence[str], rows: pl.DataFrame) -> None:
    """Deletes the rows that have the keys of `rows`. Null equals null."""
    keys = rows.select(key)
    with_null = pl.any_horizontal(pl.all().is_null())
    for found, nulls in ((keys.filter(~with_null), False), (keys.filter(with_null), True)):
        if found.is_empty():
            continue
        if bulk.copies(connection.dialect) and not nulls:
            staged = bulk.stage(connection, table, "beamlike_removed", found)
            same = (table.columns[name] == staged.columns[name] for name in key)
            connection.execute(table.delete().where(*same))
        else:
            matching = (_same(table.columns[name], nulls) for name in key)
            prefixed = found.rename({name: f"key {name}" for name in key})
            bulk.execute(connection, table.delete().where(*matching), prefixed)


def _same(column: sa.Column[Any], nulls: bool) -> sa.ColumnElement[bool]:
    value = sa.bindparam(f"key {column.name}", type_=column.type)
    # Some databases cannot use an index for IS NOT DISTINCT FROM.
    return column.is_not_distinct_from(value) if nulls else column == value


def _given(table: sa.Table, rows: pl.DataFrame, dialect: sa.Dialect) -> dict[str, Any]:
    """Returns the values to insert, as parameters named like the columns. JSON is passed as text."""
    given = {}
    for name in rows.columns:
        dtype = table.columns[name].type.dialect_impl(dialect)
        json = isinstance(dtype, sa.JSON)
        given[name] = sa.cast(sa.bindparam(name, type_=sa.Text()), dtype) if json else sa.bindparam(name)
    return given
