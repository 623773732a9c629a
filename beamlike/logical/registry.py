"""The registry of a pipeline: names in use, renamed steps, and sinks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain, count
from typing import Any, Final, get_args

import attrs

from beamlike.errors import DuplicateName, PlanError, UnknownName, UnlikeCollections, WrongType, nearest
from beamlike.io.base import Sink, WrittenBySpark, WrittenInFrames, output_schema
from beamlike.io.capabilities import require_signatures
from beamlike.io.memory import Memory
from beamlike.io.options import require_options
from beamlike.logical.calls import Call
from beamlike.logical.names import require_name
from beamlike.logical.node import Node, inputs_first
from beamlike.logical.overlaps import require_own_folder
from beamlike.logical.row_key import fitted
from beamlike.logical.written import with_columns_of
from beamlike.rows.dead_letters import OnError

_SINKS: Final = {"Kafka": "KafkaSink", "SparkSource": "SparkSink"}


@attrs.frozen
class Write:
    """A sink with its name, and the node whose rows it receives. `own_name` is the name that the user gave, if a plan
    calls the sink by another one.
    """

    name: str
    sink: Sink
    node: Node
    own_name: str = ""


@attrs.define(eq=False)
class Registry:
    """The names, sinks and options of a pipeline."""

    name: str = attrs.field()
    on_error: OnError = attrs.field(default="dead_letters", kw_only=True)
    max_dead_letters: int | float | None = attrs.field(default=None, kw_only=True)
    writes: list[Write] = attrs.field(factory=list, init=False, repr=False)
    _names: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _renamed: dict[Node, Node] = attrs.field(factory=dict, init=False, repr=False)
    _given: dict[str, bool] = attrs.field(factory=dict, init=False, repr=False)
    """For each name, True if the user gave it, False if it was derived."""
    _nodes: dict[str, Node] = attrs.field(factory=dict, init=False, repr=False)
    """The node of each step, by name."""
    calls: list[Call] = attrs.field(factory=list, init=False, repr=False)
    """The calls that declared the pipeline, in order."""
    parts: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    """For each part of a step, the suffix of its name after the name of the step, such as `.pairs`."""

    @name.validator
    def _is_a_name(self, attribute: attrs.Attribute[str], value: object) -> None:
        require_name(value, "pipeline")

    @on_error.validator
    def _is_a_choice(self, attribute: attrs.Attribute[OnError], value: object) -> None:
        _require_choice("on_error", value, get_args(OnError), f"pipeline {self.name!r}")

    @max_dead_letters.validator
    def _is_a_limit(self, attribute: attrs.Attribute[Any], value: object) -> None:
        _require_limit(value, self.on_error, f"pipeline {self.name!r}")

    def new_name(self, name: str | None, derived: str) -> str:
        """Returns a free name: the given name, or else the derived name, with a number if that is taken."""
        if name is not None:
            require_name(name, "step")
            # A given name displaces a derived one: the state of a checkpoint may be stored under it.
            if name in self._nodes and not self._given.get(name, True):
                self._make_way(self._nodes[name])
            if name in self._names:
                by = f"by {self._names[name]}"
                raise DuplicateName(
                    f"the name is taken in pipeline {self.name!r}, {by}; give another", step=name
                )
            self._given[name] = True
            return name
        number, free = 2, derived
        while free in self._names:
            number, free = number + 1, f"{derived}_{number}"
        self._given[free] = False
        return free

    def _make_way(self, node: Node) -> None:
        """Renames a node with a derived name, because a user gave this name to another step. Users may name steps at
        any time.
        """
        other = self.new_name(None, node.name)
        self._given.pop(node.name)
        self._replace(node, node.called(other))
        self._given[other] = False

    def free(self, derived: str) -> str:
        """Returns a free name for a part of a step, such as `pairs.left`. It counts as given if the step's name was
        given.
        """
        owner = max((name for name in self._given if derived.startswith(f"{name}.")), key=len, default="")
        given = self._given.get(owner, False)
        if given and not self._given.get(derived, True) and derived in self._nodes:
            self._make_way(self._nodes[derived])
        free = self.new_name(None, derived)
        self._given[free] = given
        self.parts[free] = derived.removeprefix(owner) if owner else ""
        return free

    @property
    def made(self) -> frozenset[str]:
        """The derived names. They depend on the order in which steps are declared."""
        return frozenset(name for name, given in self._given.items() if not given)

    def keep(self, node: Node) -> None:
        """Registers a step's node under its name."""
        self.register(node.name)
        self._nodes[node.name] = node

    def register(self, name: str, by: str = "a step") -> None:
        """Registers a name. `by` is the kind of its owner, for errors."""
        self._names[name] = by

    def rename(self, before: Node, after: Node) -> None:
        """Renames a step, also for steps and sinks that already use it. Both nodes are the same step."""
        self.new_name(after.name, "")
        self._replace(self.latest(before), after)

    def change(self, before: Node, after: Node) -> None:
        """Replaces a node by another declaration of the same step, also for steps and sinks that already use it."""
        self._replace(self.latest(before), after)

    def _replace(self, latest: Node, after: Node) -> None:
        self._nodes.pop(latest.name, None)
        self.register(after.name, self._names.pop(latest.name, "a step"))
        self._nodes[after.name] = after
        self._renamed[latest] = after

    def latest(self, node: Node) -> Node:
        """Returns the node under its current name, after all renamings."""
        while node in self._renamed:
            node = self._renamed[node]
        return node

    def add_sink(self, name: str, sink: Sink, node: Node, columns: Iterable[str] | None = None) -> None:
        """Adds a sink with this name for the rows of a node, with all columns or only with `columns`.

        A sink may have the name of a source or step.
        """
        require_name(name, "sink")
        if any(write.name == name for write in self.writes):
            raise DuplicateName(
                f"the name is taken in pipeline {self.name!r}, by a sink; give another", step=name
            )
        if isinstance(sink, type) or not isinstance(sink, WrittenInFrames | WrittenBySpark):
            raise WrongType(
                f"expected a sink such as bl.Parquet('out/averages'), got {_got(sink)}", step=name
            )
        require_options(sink, "sink", name)
        require_signatures(sink, "sink", name)
        require_own_folder(sink, {write.name: write.sink for write in self.writes}, name)
        if columns is not None:
            node = with_columns_of(node, columns, sink, name, self.free(f"{name}.columns"))
        self._require_like_columns(sink, node, name)
        sink = fitted(sink, node, name, chosen=columns is not None)
        if columns is not None:
            self.register(node.name)
        self.writes.append(Write(name, sink, node))

    def _require_like_columns(self, sink: Sink, node: Node, step: str) -> None:
        """Raises `UnlikeCollections` if a sink in memory, whose rows are one frame, receives other columns already."""
        columns = output_schema(node.shape.everything())
        for write in self.writes if isinstance(sink, Memory) else []:
            if write.sink is sink and output_schema(write.node.shape.everything()) != columns:
                raise UnlikeCollections(
                    f"its columns are not those of {write.name!r}, which writes to the same sink: give it a "
                    "bl.Memory() of its own",
                    step=step,
                )

    def written(self) -> list[Write]:
        """Returns the sinks with their nodes, sorted by name. All nodes have their current names.

        In a plan, a sink with the name of a source or step is called `NAME.sink`, as plans address both by name.
        """
        known: dict[Node, Node] = {}
        writes = sorted(self.writes, key=lambda write: write.name)
        made = [attrs.evolve(write, node=self._renewed(write.node, known)) for write in writes]
        taken = {*(node.name for node in known.values())}
        used = {*taken, *(write.name for write in writes)}
        return [
            attrs.evolve(one, name=_apart(one.name, used), own_name=one.name) if one.name in taken else one
            for one in made
        ]

    def _renewed(self, node: Node, known: dict[Node, Node]) -> Node:
        """Returns the node, and all nodes from which it is computed, with their current names.

        A node that is reached over several paths stays a single object.
        """
        for one in inputs_first(self.latest(node), self._latest_inputs):
            if one not in known:
                inputs = tuple(known[before] for before in self._latest_inputs(one))
                same = all(new is old for new, old in zip(inputs, one.inputs, strict=True))
                known[one] = one if same else attrs.evolve(one, inputs=inputs)
        return known[self.latest(node)]

    def _latest_inputs(self, node: Node) -> list[Node]:
        return [self.latest(before) for before in node.inputs]


def _apart(name: str, used: Container[str]) -> str:
    """Returns the name of a sink in plans in which `name` is a source or step."""
    free = (f"{name}.sink{end}" for end in chain([""], map(str, count(2))))
    return next(one for one in free if one not in used)


def _got(given: object) -> str:
    """Describes an object that is no sink, and names the class that the user may have meant."""
    kind = type(given).__name__
    if kind in _SINKS:
        return f"the source {kind}; did you mean bl.{_SINKS[kind]}(...)?"
    return repr(given)


def _require_choice(name: str, given: object, choices: Sequence[str], what: str) -> None:
    """Raises `UnknownName` unless the argument `name` of `what` is one of the choices."""
    if given not in choices:
        known = " or ".join(map(repr, choices))
        raise UnknownName(f"{what}: {name} must be {known}, not {given!r}{nearest(given, choices)}")


def _require_limit(given: object, on_error: str, what: str) -> None:
    """Raises `PlanError` unless a limit of dead letters is a count, a share of the rows below 1, or None for no limit.
    The message begins with `what`.
    """
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WrongType(
            f"{what}: max_dead_letters must be a count such as 1000, or a share of the rows such as 0.01, not {given!r}"
        )
    if not (given >= 0 and (isinstance(given, int) or given < 1)):
        hint = f"; did you mean {int(given)}?" if given >= 1 and given == int(min(given, 2**63)) else ""
        raise PlanError(
            f"{what}: max_dead_letters={given!r} is neither a count of at least 0 nor a share from 0 to below 1{hint}"
        )
    if on_error == "fail":
        raise PlanError(
            f"{what}: with on_error='fail' the first dead letter fails the run; leave out max_dead_letters={given!r}, "
            "or on_error"
        )
