"""Tables of SQL databases as sinks: a row per key and window that later panes replace, or every row appended once.

`source` has the part that reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import attrs
import polars as pl

from beamlike.errors import PlanError, missing_package, nearest
from beamlike.io.base import Declared, Part, declared
from beamlike.io.options import FOR_SINKS, FOR_SOURCES
from beamlike.io.sinks import ARE_DOUBLED, STAY_UNTIL_REPLACED, Place, RowKey, SinkInput, standing
from beamlike.io.sql.names import is_query
from beamlike.io.sql.source import TableSource
from beamlike.system.datasets import Dataset, table_dataset
from beamlike.system.fields import text, true_or_false

if TYPE_CHECKING:
    import sqlalchemy as sa

    from beamlike.io.sql.holding import ServerLock
    from beamlike.system.locks import Lock

_MODES = ("upsert", "append")


def _statements() -> ModuleType:
    try:
        from beamlike.io.sql import statements
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise missing_package("bl.Table needs SQLAlchemy", "table", error) from None
    return statements


def _parsed(url: Any) -> sa.URL:
    """Parses the URL. Error messages do not contain it, because it may have a password."""
    _statements()
    import sqlalchemy as sa

    example = "such as 'sqlite:///out.db' or 'postgresql+psycopg://host/database'"
    if not isinstance(url, str | sa.URL):
        raise TypeError(f"Table: url must be text {example}, not a {type(url).__name__}")
    try:
        parsed = sa.make_url(url)
        parsed.get_dialect()
    except sa.exc.NoSuchModuleError:
        raise ValueError(
            f"Table: SQLAlchemy knows no database {parsed.drivername!r}; give an url {example}"
        ) from None
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError(f"Table: url is not that of a database, {example}") from None
    if "@" in str(parsed.database) and parsed.get_backend_name() != "sqlite":
        raise ValueError(
            "Table: the url has an @ after the host, as if a password had an @ or a / that is not quoted: write "
            "urllib.parse.quote(password, safe='') in its place, or give sqlalchemy.URL.create(..., password=...)"
        )
    in_memory = parsed.database in (None, "", ":memory:") or parsed.query.get("mode") == "memory"
    if parsed.get_backend_name() == "sqlite" and in_memory:
        raise ValueError(
            "Table: an SQLite database in memory is gone after a batch; name a file, or use bl.Memory()"
        )
    return parsed


def _name(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not (
        is_query(value) or all(part.strip(' "') for part in value.split("."))
    ):
        raise ValueError(
            f"Table: table must be a name such as 'averages' or 'schema.averages', not {value!r}"
        )


def _mode(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value not in _MODES:
        raise ValueError(f"Table: mode may be 'upsert' or 'append', not {value!r}{nearest(value, _MODES)}")


@attrs.frozen
class Table(TableSource):
    """A table of any database that SQLAlchemy has a dialect for, as a source or as a sink.

    As a source, all rows are read once; with `grows`, new rows are then read repeatedly.

    As a sink, the table is created at the start of a run if it does not exist. On Spark each task writes its rows of a
    batch in one transaction. To SQLite, which is a local file, only the driver writes.

    Needs SQLAlchemy, and ADBC to read from PostgreSQL, from the extra `table`.

    Args:
        url: A URL of SQLAlchemy. Its secret parts are never shown.
        table: The name, which may be `schema.table`. A name with a dot is in double quotes, as in SQL:
            `'"plays.2026"'`. For a source, it may be a query that begins with SELECT or WITH.
        mode: "upsert" for the output of a grouping: the table has one row per key and window, from the latest pane; a
            retracted pane removes its row. Or "append" for any rows; a repeated batch is not appended again.
        per_pane: True to upsert one row per key, window and pane, with a mark for retracted panes.
        grows: A column of whole numbers, times or text. Each batch has the rows above the greatest value so far.
        schema: Column names and types, needed for a query. By default they are those of the table.
        complete: True if the table gets no more rows, as for `Delta`.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: The URL or another argument is invalid.

    Example, with the `plays` of `bl.Collection`:
        >>> import sqlite3
        >>> days = plays.window_into(bl.FixedWindows("1d")).group_by("user", name="days").aggregate(n=bl.count())
        >>> days.write("table", bl.Table("sqlite:///plays.db", "plays_by_day"))
        <Collection 'days': user String, n Int64>
        >>> run = p.run()
        >>> sqlite3.connect("plays.db").execute("select user, n from plays_by_day order by user").fetchall()
        [('ada', 2), ('bob', 1)]
        >>> again = bl.Table("sqlite:///plays.db", "plays_by_day")
        >>> bl.Pipeline("again").read("days", again).collect().select("user", "n").rows()
        [('ada', 2), ('bob', 1)]
    """

    url: sa.URL = attrs.field(converter=_parsed, repr=lambda url: f'"{_statements().shown(url)}"')
    table: str = attrs.field(validator=_name)
    mode: Literal["upsert", "append"] = attrs.field(default="upsert", validator=_mode, metadata=FOR_SINKS)
    per_pane: bool = attrs.field(default=False, validator=true_or_false, metadata=FOR_SINKS)
    grows: str | None = attrs.field(default=None, kw_only=True, validator=text, metadata=FOR_SOURCES)
    _schema: Declared | None = attrs.field(
        default=None, converter=declared, alias="schema", kw_only=True, metadata=FOR_SOURCES
    )
    complete: bool = attrs.field(default=False, kw_only=True, validator=true_or_false, metadata=FOR_SOURCES)
    _rows: SinkInput | None = attrs.field(default=None, kw_only=True, repr=False)
    # The columns of the source, inferred when the pipeline was declared.
    _seen: pl.Schema | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)
    # The table to write, with only those columns that exist in the database. It is inspected once per run.
    _checked: dict[str, sa.Table] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.per_pane and self.mode == "append":
            raise ValueError(
                "Table: per_pane=True goes with mode='upsert'; appended rows are a row per pane anyway"
            )

    remembers: ClassVar[bool] = True

    @property
    def distributed(self) -> bool:
        """True if tasks on other machines may write. Not for SQLite, whose file is on the driver's machine."""
        return self.url.get_backend_name() != "sqlite"

    @property
    def upserts(self) -> bool:
        return self.mode == "upsert"

    def datasets(self) -> list[Dataset] | None:
        if is_query(self.table):
            return None
        return [table_dataset(_statements().place_of(self.url, self.table))]

    def place(self) -> Place:
        file = "" if self.distributed else str(self.url.database).removeprefix("file:")
        return Place("table", self.table, key=_statements().place_of(self.url, self.table), path=file)

    def fitted(self, rows: SinkInput) -> Self:
        """Raises `PlanError` for a column that no table can store, and if the name of the table is a query."""
        if is_query(self.table):
            raise PlanError("Table: a query is for a source; name the table that is written", step=rows.step)
        key = rows.key
        if (
            key is not None
            and key.retracted is not None
            and not key.per_pane
            and key.retracted not in rows.user
        ):
            # In this mode, rows of retracted panes are deleted, so the column would be False in every row.
            left = {name: dtype for name, dtype in rows.schema.items() if name != key.retracted}
            rows = attrs.evolve(rows, schema=pl.Schema(left))
        try:
            _statements().column_types(rows.schema)
        except TypeError as error:
            raise PlanError(str(error), step=rows.step) from None
        return attrs.evolve(self, rows=rows)

    def for_run(self) -> Self:
        return attrs.evolve(self)

    def check(self) -> None:
        """Creates the table if it does not exist. Raises `PlanError` if an existing table does not fit.

        It may lack columns of the engine that do not identify rows.
        """
        from beamlike.io.sql import ledger

        statements, rows = _statements(), self._declared()
        wanted = statements.table_of(
            self.table, statements.column_types(rows.schema, rows.key_columns), rows.key_columns
        )
        with self._begin() as connection:
            if wrong := statements.unknown_schema(connection, wanted):
                raise PlanError(wrong, step=rows.step)
            ledger.prepare(connection, wanted)
            wanted.create(connection, checkfirst=True)
            found = list(statements.misfits(connection, wanted, rows.required, rows.key_columns))
            if found:
                message = f"the table {self.table!r} does not fit this sink: {'; '.join(found)}"
                raise PlanError(message, step=rows.step)
            self._checked["table"] = statements.as_found(connection, wanted)

    def hold(self, run: str) -> Lock | ServerLock | None:
        from beamlike.io.sql import holding

        return holding.hold(self.url, self.place().key, run)

    def start(self, run: str) -> None:
        """Creates or checks the table. Rows stay; the ledger's entries of an earlier run with this name are removed."""
        from beamlike.io.sql import ledger

        table = self._found()
        with self._begin() as connection:
            ledger.forget(connection, table, run)

    def latest_batch(self, run: str) -> int | None:
        from beamlike.io.sql import ledger

        table = self._found()
        with self._begin() as connection:
            return ledger.latest_batch(connection, table, run)

    def cut(self, run: str, batch: int) -> str:
        """Removes nothing, because rows do not have the number of their batch."""
        return STAY_UNTIL_REPLACED if self.upserts else ARE_DOUBLED

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes all rows of a part, or none."""
        if frame.is_empty():
            return
        from beamlike.io.sql import ledger

        statements, table, key = _statements(), self._found(), self._declared().key
        with self._begin() as connection:
            if not ledger.claim(connection, table, part, replaces=key is not None):
                return
            if key is not None:
                self._replace(connection, table, frame, key)
            else:
                statements.insert(connection, table, frame.select(table.columns.keys()))

    def _replace(self, connection: sa.Connection, table: sa.Table, frame: pl.DataFrame, key: RowKey) -> None:
        statements, columns = _statements(), list(key.columns)
        left = standing(frame, key)
        statements.delete(connection, table, columns, left.gone)
        statements.upsert(connection, table, columns, left.rows.select(table.columns.keys()))

    def _declared(self) -> SinkInput:
        if self._rows is None:
            raise RuntimeError("Table: its columns are unknown before collection.write(name, table)")
        return self._rows

    def _found(self) -> sa.Table:
        if not self._checked:
            self.check()
        return self._checked["table"]

    def _begin(self) -> AbstractContextManager[sa.Connection]:
        """Begins a transaction."""
        try:
            return _statements().engine(self.url).begin()  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            raise _statements().without_driver(self.url, error, self._declared().step) from None
