"""The base class of collections: a handle on a node, and the creation of the next node by a step."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.html import collection_html
from beamlike.api.other_names import COLLECTION, missing, public_names
from beamlike.errors import PlanError
from beamlike.logical.joins import join_nodes
from beamlike.logical.lookups import looked_up
from beamlike.logical.node import Node
from beamlike.logical.origins import Read
from beamlike.logical.registry import Registry
from beamlike.logical.side_nodes import nodes_named_after
from beamlike.logical.sides import Made
from beamlike.rows.dtypes import schema_text
from beamlike.steps.base import Step
from beamlike.steps.infer import run_empty
from beamlike.steps.python import FlatMap, Map, MapBatches
from windowing.windowing import Windowing

IntoColumn = str | nw.Expr


@attrs.frozen(eq=False)
class Handle:
    """A handle on a `node` of the declarations in `pipeline`."""

    pipeline: Registry = attrs.field(repr=False)
    node: Node

    @property
    def name(self) -> str:
        """The name of the source or step that produces the rows."""
        return self.node.name

    @property
    def schema(self) -> pl.Schema:
        """The user's columns and their polars types."""
        return self.node.schema

    @property
    def windowing(self) -> Windowing:
        """The windows of the rows, and the trigger by which a grouping of them emits."""
        return self.node.windowing

    def __repr__(self) -> str:
        return f"<Collection {self.name!r}: {schema_text(self.schema)}>"

    if not TYPE_CHECKING:  # for a type checker, an attribute that is not declared stays an error

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError` with the fitting method for a name of another library, or for a column."""
            if name.startswith("_"):
                raise AttributeError(name)
            node = object.__getattribute__(self, "node")  # it is not there yet while a copy is made
            hints = {column: f"bl.col({column!r}) in an expression" for column in node.schema}
            known = public_names(type(self))
            raise missing(self, "a collection", name, {**hints, **COLLECTION}, known)

    def _repr_html_(self) -> str:
        node, title = self.node, f"Collection {self.name!r} of pipeline {self.pipeline.name!r}"
        inputs = [before.name for before in node.inputs]
        return collection_html(title, node.origin, inputs, node.schema, node.windowing)

    def named(self, name: str) -> Self:
        """Renames the step of this collection: names appear in errors, metrics, plans and state.

        Steps and sinks that already use this collection follow the renamed step.

        Raises:
            PlanError: The name is taken, or the collection is a source (its name is an argument of `read`).

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").named("users").name
            'users'
        """
        node = self.pipeline.latest(self.node)
        if isinstance(node.origin, Read):
            raise PlanError(
                "the name of a source is given in read(...) or with_watermark(...)", step=self.name
            )
        # A step whose name was derived, even this one, is renamed if it has the wanted name.
        self.pipeline.new_name(name, "")
        node = self.pipeline.latest(node)
        after: Node = attrs.evolve(node.called(name), base=name)
        self.pipeline.rename(node, after)
        for made in [self.pipeline.latest(made) for made in nodes_named_after(node)]:
            rest = made.name.removeprefix(node.name)
            self.pipeline.rename(made, made.called(self.pipeline.free(f"{name}{rest}")))
        return type(self)(self.pipeline, after)

    def _new_name(self, kind: str, name: str | None = None) -> tuple[str, str]:
        """The step's name, and the base of derived names after it: `name` if it is given."""
        new = self.pipeline.new_name(name, f"{self.node.base}.{kind}")
        return new, self.node.base if name is None else new

    def _step(
        self, step: Step, base: str, *, infer: bool = True, hidden: Container[str] = (), **changes: Any
    ) -> Self:
        """Applies a step; columns in `hidden` are visible to the step only."""
        user = step.schema if isinstance(step, Map | FlatMap | MapBatches) else self.schema
        if infer:
            user = run_empty(self.node.shape, step)
        user = pl.Schema({name: dtype for name, dtype in user.items() if name not in hidden})
        shape = attrs.evolve(self.node.shape, user=user)
        return self._next(name=step.name, base=base, origin=step, shape=shape, **changes)

    def _next(self, **changes: Any) -> Self:
        """A collection of a copy of this node with `changes`, with this node as its input."""
        return self._after(attrs.evolve(self.node, inputs=(self.node,), **changes))

    def _made(self, made: Node) -> Self:
        """Registers the nodes of a join or a cogroup, and returns the collection of the last node."""
        for node in join_nodes(made):
            self.pipeline.keep(node)
        return type(self)(self.pipeline, made)

    def _made_beside(self, made: Made) -> Self:
        """Registers a node after the nodes that were made only for it, and returns its collection."""
        for node in made.others:
            self.pipeline.keep(node)
        return self._after(made.node)

    def _after(self, node: Node) -> Self:
        """Registers the node's name, and returns its collection."""
        self.pipeline.keep(node)
        return type(self)(self.pipeline, node)

    def _with_sides(self, given: list[nw.Expr], step: str) -> tuple[Self, Sequence[nw.Expr], Container[str]]:
        """Adds looked-up columns; returns the collection, the expressions, and the names of columns to hide."""
        found = looked_up(self.node, given, step, self.pipeline)
        if found is None:
            return self, given, ()
        return self._made_beside(found.made), found.expressions, found.hidden
