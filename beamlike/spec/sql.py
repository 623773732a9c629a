"""SQL as declarations: `bl.sql("SELECT ... FROM plays GROUP BY ...", plays=plays)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from beamlike.api.pipeline import Collection
from beamlike.errors import BadQuery, PlanError, WrongType, missing_package
from beamlike.expressions.grammar import TOO_DEEP

if TYPE_CHECKING:
    from beamlike.spec.document import Item
    from beamlike.spec.parameters import Parameters


def sql(query: str, /, **tables: Collection) -> Collection:
    """Declares the steps of an SQL query, and returns their result.

    The steps are those of the DSL, so results have windows, panes and event times as theirs. docs/sql.md has the
    grammar. sqlglot is needed: `pip install 'beamlike[sql]'`.

    Args:
        query: One query: `SELECT` with `TUMBLE`, `HOP` and `SESSION` windows, `EMIT`, joins, top n, `UNION ALL`.
        **tables: The collections by the names of their tables in the query, at least one, of one pipeline.

    Raises:
        BadQuery: The query cannot be read, names an unknown column, or has no counterpart. The message has the line and
            the column, and what to write instead.
        PlanError: The steps do not fit together.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = "SELECT user, SUM(points) AS points FROM plays GROUP BY user, TUMBLE(at, INTERVAL '1' MINUTE)"
        >>> bl.sql(minutes, plays=plays).collect()[["user", "points"]].sort("user", "points").rows()
        [('ada', 3), ('ada', 4), ('bob', 5)]
    """
    if not isinstance(query, str):
        raise WrongType(f"sql takes the text of a query, not {query!r}")
    if not tables:
        raise PlanError(
            "sql needs the tables of the query, such as sql('SELECT ... FROM plays', plays=plays)"
        )
    for name, table in tables.items():
        if not isinstance(table, Collection):
            raise WrongType(f"sql: the table {name!r} must be a collection, not {table!r}")
    return _result(query, tables)


def sql_of_file(item: Item, parameters: Parameters, tables: Mapping[str, Collection]) -> Collection:
    """Declares the steps of a query of a file, in which parameters are values."""
    return _result(item.text("a query"), tables, item, parameters)


def _result(
    text: str,
    tables: Mapping[str, Collection],
    item: Item | None = None,
    parameters: Parameters | None = None,
) -> Collection:
    try:
        from beamlike.spec.sql_parameters import QueryParameters
        from beamlike.spec.sql_query import Query
    except ModuleNotFoundError as error:
        raise missing_package("bl.sql needs sqlglot", "sql", error) from None
    given = None if item is None or parameters is None else QueryParameters(parameters, item)
    try:
        return Query(text, tables, given).result()
    except RecursionError:
        raise BadQuery(f"line 1, column 1: {TOO_DEEP}") from None
