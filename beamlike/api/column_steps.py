"""Steps of a collection that choose, add or change columns."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Self

import attrs
import narwhals as nw

from beamlike.api.handle import Handle, IntoColumn
from beamlike.rows.dtypes import SchemaLike
from beamlike.steps.base import Select, WithColumns
from beamlike.steps.columns import casts, renamed, require_lists, unnested, without
from beamlike.steps.infer import expressions, outputs, parse
from beamlike.steps.lists import Explode


@attrs.frozen(eq=False, repr=False)
class ColumnSteps(Handle):
    """The steps of a collection that choose, add or change columns."""

    def select(self, *columns: IntoColumn, **named: Any) -> Self:
        """Keeps only these columns, or computes them. Event time, window and pane stay, as they are no user columns.

        Args:
            *columns: Names or expressions.
            **named: Expressions by the name of their column.

        Raises:
            PlanError: A column does not exist, a name is used twice, or an expression reads more than one row.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user", double=bl.col("points") * 2)
            <Collection 'plays.select': user String, double Int64>
        """
        step, base = self._new_name("select")
        before, given, _ = self._with_sides(parse(columns, named, step=step), step)
        return before._select(expressions(before.node.shape, given, {}, step=step), step, base)

    def with_columns(self, *columns: IntoColumn, **named: Any) -> Self:
        """Adds or replaces columns. Expressions may read another collection: see `bl.lookup`.

        Args:
            *columns: Names or expressions.
            **named: Expressions by the name of their column.

        Raises:
            PlanError: A column does not exist, or an expression reads more than one row.

        Example, with the `plays` of `Collection`:
            >>> plays.with_columns(won=bl.col("points") > 3).collect()["won"].to_list()
            [False, True, True]
        """
        step, base = self._new_name("with_columns")
        before, given, hidden = self._with_sides(parse(columns, named, step=step), step)
        chosen = expressions(before.node.shape, given, {}, step=step)
        # Looked-up columns are only for these expressions, so they are hidden from the result. `select` drops
        # them anyway.
        return before._with_columns(chosen, step, base, hidden)

    def drop(self, *columns: str) -> Self:
        """Removes these columns. Event time, window and pane stay, as they are no user columns.

        Raises:
            PlanError: A column does not exist, or no column would be left.

        Example, with the `plays` of `Collection`:
            >>> plays.drop("at")
            <Collection 'plays.drop': user String, points Int64>
        """
        step, base = self._new_name("drop")
        left = without(self.schema, columns, step)
        return self._select(expressions(self.node.shape, left, {}, step=step), step, base)

    def rename(self, names: Mapping[str, str]) -> Self:
        """Renames columns; all columns keep their position.

        Args:
            names: The new name for each old name.

        Raises:
            PlanError: A column does not exist, or a new name is taken.

        Example, with the `plays` of `Collection`:
            >>> plays.rename({"points": "score"})
            <Collection 'plays.rename': user String, score Int64, at String>
        """
        step, base = self._new_name("rename")
        chosen = renamed(self.schema, names, step)
        return self._select(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def explode(self, column: str, *, number: str | None = None) -> Self:
        """Emits a row for each item of the lists in a column, with the other columns; an empty list emits none.

        Args:
            column: The column of lists.
            number: The name of a new column that numbers the items of each list from 1.

        Raises:
            PlanError: The column does not exist or has no lists, or the name `number` is taken.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d")).aggregate(user=bl.top("user", 2, by="points"))
            >>> days.explode("user", number="rank").collect()[["rank", "user"]].rows()
            [(1, 'bob'), (2, 'ada')]
        """
        name, base = self._new_name("explode")
        require_lists(self.schema, column, number, name)
        return self._step(Explode(name, column, number), base)

    def unnest(self, column: str) -> Self:
        """Replaces a column of structs by a column for each field, at the same position.

        Raises:
            PlanError: The column does not exist or has no structs, or the name of a field is taken.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> best = days.aggregate(best=bl.arg_max(["user", "points"], by="points")).unnest("best")
            >>> best.collect()[["user", "points"]].rows()
            [(\'bob\', 5)]
        """
        step, base = self._new_name("unnest")
        return self._select(
            expressions(self.node.shape, unnested(self.schema, column, step), {}, step=step), step, base
        )

    def cast(self, types: SchemaLike) -> Self:
        """Casts columns to other types. A row with a value that its new type cannot hold goes to `dead_letters()`.

        Args:
            types: The new type for each column, written as in `map`.

        Raises:
            PlanError: A column does not exist, or its type can never become the new one.

        Example, with the `plays` of `Collection`:
            >>> plays.cast({"points": float})
            <Collection 'plays.cast': user String, points Float64, at String>
        """
        step, base = self._new_name("cast")
        chosen = casts(self.schema, types, step)
        return self._with_columns(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def _select(self, chosen: tuple[nw.Expr, ...], step: str, base: str) -> Self:
        return self._step(Select(step, chosen, self._names(chosen, step), self.node.shape.system), base)

    def _with_columns(
        self, chosen: tuple[nw.Expr, ...], step: str, base: str, hidden: Container[str] = ()
    ) -> Self:
        return self._step(WithColumns(step, chosen, self._names(chosen, step)), base, hidden=hidden)

    def _names(self, chosen: tuple[nw.Expr, ...], step: str) -> tuple[tuple[str, ...], ...]:
        """Returns the names of the columns that each expression produces."""
        return tuple(tuple(schema) for schema in outputs(self.node.shape, chosen, step=step))
