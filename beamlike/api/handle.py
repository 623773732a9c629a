"""The base class of collections: it wraps a node of the graph, and creates the next node for each step."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.html import collection_html
from beamlike.api.other_names import COLLECTION, missing, public_names
from beamlike.api.unlike_frames import UnlikeFrames
from beamlike.errors import PlanError
from beamlike.logical.joins import join_nodes
from beamlike.logical.lookups import looked_up
from beamlike.logical.node import Node
from beamlike.logical.origins import Read
from beamlike.logical.registry import Registry
from beamlike.logical.side_nodes import nodes_named_after
from beamlike.logical.sides import NodeWithParts
from beamlike.rows.dtypes import schema_text
from beamlike.steps.base import Step
from beamlike.steps.infer import run_empty
from beamlike.steps.python import FlatMap, Map, MapBatches
from windowing.windowing import Windowing

IntoColumn = str | nw.Expr


@attrs.frozen(eq=False)
class Handle(UnlikeFrames):
    """A reference to a `node` of the declarations in `pipeline`."""

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
        """The windows of the rows, and the trigger with which a following grouping emits."""
        return self.node.windowing

    def __repr__(self) -> str:
        return f"<Collection {self.name!r}: {schema_text(self.schema)}>"

    if not TYPE_CHECKING:  # hidden from type checkers, so that they still report unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError`. For a column, or a method name of another library, the message says what to use
            instead.
            """
            if name.startswith("_"):
                raise AttributeError(name)
            node = object.__getattribute__(self, "node")  # `self.node` would recurse while a copy is made
            hints = {column: f"bl.col({column!r}) in an expression" for column in node.schema}
            known = public_names(type(self))
            raise missing(self, "a collection", name, {**hints, **COLLECTION}, known)

    def _repr_html_(self) -> str:
        node, title = self.node, f"Collection {self.name!r} of pipeline {self.pipeline.name!r}"
        inputs = [before.name for before in node.inputs]
        return collection_html(title, node.origin, inputs, node.schema, node.windowing)

    def named(self, name: str) -> Self:
        """Renames the step of this collection: names appear in errors, metrics, plans and state.

        Steps and sinks that already use this collection use the renamed step.

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
        # A step that already has this name gives way if its name was derived, even if it is this step itself.
        self.pipeline.new_name(name, "")
        node = self.pipeline.latest(node)
        after: Node = attrs.evolve(node.called(name), base=name)
        self.pipeline.rename(node, after)
        for made in [self.pipeline.latest(made) for made in nodes_named_after(node)]:
            rest = made.name.removeprefix(node.name)
            self.pipeline.rename(made, made.called(self.pipeline.free(f"{name}{rest}")))
        return type(self)(self.pipeline, after)

    def _new_name(self, kind: str, name: str | None = None) -> tuple[str, str]:
        """Returns the name of the next step, and the base of the names derived for the steps after it.

        Both are `name` if it is given.
        """
        new = self.pipeline.new_name(name, f"{self.node.base}.{kind}")
        return new, self.node.base if name is None else new

    def _step(
        self, step: Step, base: str, *, infer: bool = True, hidden: Container[str] = (), **changes: Any
    ) -> Self:
        """Adds a step, and returns its collection. Columns in `hidden` are visible only to the step, not in
        its result.
        """
        user = step.schema if isinstance(step, Map | FlatMap | MapBatches) else self.schema
        if infer:
            user = run_empty(self.node.shape, step)
        user = pl.Schema({name: dtype for name, dtype in user.items() if name not in hidden})
        shape = attrs.evolve(self.node.shape, user=user)
        return self._next(name=step.name, base=base, origin=step, shape=shape, **changes)

    def _next(self, **changes: Any) -> Self:
        """Returns a collection whose node is a copy of this one with `changes`, and with this node as its input."""
        return self._after(attrs.evolve(self.node, inputs=(self.node,), **changes))

    def _made(self, made: Node) -> Self:
        """Registers the nodes of a join or a cogroup, and returns the collection of the last node."""
        for node in join_nodes(made):
            self.pipeline.keep(node)
        return type(self)(self.pipeline, made)

    def _made_with_helpers(self, made: NodeWithParts) -> Self:
        """Registers a node, and the helper nodes that were created for it, and returns its collection."""
        for node in made.others:
            self.pipeline.keep(node)
        return self._after(made.node)

    def _after(self, node: Node) -> Self:
        """Registers a node under its name, and returns its collection."""
        self.pipeline.keep(node)
        return type(self)(self.pipeline, node)

    def _with_sides(self, given: list[nw.Expr], step: str) -> tuple[Self, Sequence[nw.Expr], Container[str]]:
        """Adds a step for the lookups in the given expressions.

        Returns the collection with the looked-up columns, the expressions that read them, and the names of columns to
        hide afterwards.
        """
        found = looked_up(self.node, given, step, self.pipeline)
        if found is None:
            return self, given, ()
        return self._made_with_helpers(found.made), found.expressions, found.hidden
