"""What a pipeline knows of what was declared in it: names that are taken, steps that were renamed, and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import attrs

from beamlike.errors import DuplicateName, PlanError, UnknownName, WrongType, nearest
from beamlike.io.base import Sink, WrittenBySpark, WrittenInFrames
from beamlike.io.capabilities import require_signatures
from beamlike.io.options import require_options
from beamlike.logical.names import require_name
from beamlike.logical.node import Node, inputs_first
from beamlike.logical.overlaps import require_own_folder
from beamlike.logical.row_key import fitted
from beamlike.logical.written import with_columns_of
from beamlike.rows.dead_letters import OnError

_SINKS: Final = {"Kafka": "KafkaSink", "SparkSource": "SparkSink"}


@attrs.frozen
class Write:
    """Rows that go to a sink."""

    name: str
    sink: Sink
    node: Node


@attrs.define(eq=False)
class Registry:
    """The names of a pipeline, its sinks, and what is chosen for it as a whole."""

    name: str = attrs.field()
    on_error: OnError = attrs.field(default="dead_letters", kw_only=True)
    max_dead_letters: int | float | None = attrs.field(default=None, kw_only=True)
    writes: list[Write] = attrs.field(factory=list, init=False, repr=False)
    _names: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _renamed: dict[Node, Node] = attrs.field(factory=dict, init=False, repr=False)
    _given: dict[str, bool] = attrs.field(factory=dict, init=False, repr=False)
    """Names by whether the user has given them."""
    _nodes: dict[str, Node] = attrs.field(factory=dict, init=False, repr=False)
    """Nodes by their names, of those that steps have made."""
    parts: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    """Of the name of a part of a step what comes after that of the step: `.pairs`."""

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
        """A name that is free: the given one, else the derived one, with a number where that is taken."""
        if name is not None:
            require_name(name, "step")
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
        """A name that nobody has given goes to the step that is given it: a user may ask for one of a checkpoint."""
        other = self.new_name(None, node.name)
        self._given.pop(node.name)
        self._replace(node, node.called(other))
        self._given[other] = False

    def free(self, derived: str) -> str:
        """A free name for a part of a step, such as `pairs.left`; as good as given, if that of the step is."""
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
        """The names that the user has not given. They depend on the order in which steps are declared."""
        return frozenset(name for name, given in self._given.items() if not given)

    def keep(self, node: Node) -> None:
        """The name of a node that a step has made is taken from now on."""
        self.register(node.name)
        self._nodes[node.name] = node

    def register(self, name: str, by: str = "a step") -> None:
        """The name is taken from now on, by something of this kind."""
        self._names[name] = by

    def rename(self, before: Node, after: Node) -> None:
        """A step gives up its name for another: `after` takes its place, also where it has been used already."""
        self.new_name(after.name, "")
        self._replace(self.latest(before), after)

    def _replace(self, latest: Node, after: Node) -> None:
        self._nodes.pop(latest.name, None)
        self.register(after.name, self._names.pop(latest.name, "a step"))
        self._nodes[after.name] = after
        self._renamed[latest] = after

    def latest(self, node: Node) -> Node:
        """The node as it is called now."""
        while node in self._renamed:
            node = self._renamed[node]
        return node

    def add_sink(self, name: str, sink: Sink, node: Node, columns: Iterable[str] | None = None) -> None:
        """The rows of a node go to a sink of this name, with all their columns or with these."""
        self.new_name(name, "")
        if isinstance(sink, type) or not isinstance(sink, WrittenInFrames | WrittenBySpark):
            raise WrongType(
                f"expected a sink such as bl.Parquet('out/averages'), got {_got(sink)}", step=name
            )
        require_options(sink, "sink", name)
        require_signatures(sink, "sink", name)
        require_own_folder(sink, {write.name: write.sink for write in self.writes}, name)
        if columns is not None:
            node = with_columns_of(node, columns, sink, name, self.free(f"{name}.columns"))
        sink = fitted(sink, node, name, chosen=columns is not None)
        self.register(name, "a sink")
        if columns is not None:
            self.register(node.name)
        self.writes.append(Write(name, sink, node))

    def written(self) -> list[Write]:
        """What goes to sinks, in the order of their names, made of nodes as they are called now."""
        known: dict[Node, Node] = {}
        writes = sorted(self.writes, key=lambda write: write.name)
        return [attrs.evolve(write, node=self._renewed(write.node, known)) for write in writes]

    def _renewed(self, node: Node, known: dict[Node, Node]) -> Node:
        """The node, and all that it is made from; each is one object, however it is reached."""
        for one in inputs_first(self.latest(node), self._latest_inputs):
            if one not in known:
                inputs = tuple(known[before] for before in self._latest_inputs(one))
                same = all(new is old for new, old in zip(inputs, one.inputs, strict=True))
                known[one] = one if same else attrs.evolve(one, inputs=inputs)
        return known[self.latest(node)]

    def _latest_inputs(self, node: Node) -> list[Node]:
        return [self.latest(before) for before in node.inputs]


def _got(given: object) -> str:
    """The object that is no sink, and the class that may have been meant."""
    kind = type(given).__name__
    if kind in _SINKS:
        return f"the source {kind}; did you mean bl.{_SINKS[kind]}(...)?"
    return repr(given)


def _require_choice(name: str, given: object, choices: Sequence[str], what: str) -> None:
    """One of a few words."""
    if given not in choices:
        known = " or ".join(map(repr, choices))
        raise UnknownName(f"{what}: {name} must be {known}, not {given!r}{nearest(given, choices)}")


def _require_limit(given: object, on_error: str, what: str) -> None:
    """How many dead letters are too many: a count, or a share of the rows below 1; None for no limit."""
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
