"""Writes the declarations of a pipeline as a YAML file, which `bl.from_yaml` reads."""

from __future__ import annotations

from typing import Any

import attrs
import narwhals as nw

from beamlike.api.grouped import Grouped
from beamlike.api.handle import Handle
from beamlike.errors import missing_package
from beamlike.logical.calls import Call
from beamlike.logical.data import Writer, call_data
from beamlike.logical.node import Node
from beamlike.logical.registry import Registry
from beamlike.rows.yaml_scalars import scalar

_WIDTH = 110
_ENDS_OF_LINES = ("\x85", "\u2028", "\u2029")
_OF_EXPRESSIONS = ("select", "with_columns", "filter")
"""Steps in which text is the name of a column in Python, and an expression in a file."""


def to_yaml(pipeline: Registry) -> str:
    """Returns the text of a file that declares the same pipeline. Raises `PlanError` for what only Python can say."""
    return text_of(document(pipeline))


def text_of(data: dict[str, Any]) -> str:
    """Returns data as YAML that the reader of files reads as the same data."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise missing_package("pipelines as files need PyYAML", "yaml", error) from None

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
        """Writes text in quotes if the reader would read it without quotes as another value."""

        def represent_str(self, text: str) -> Any:
            style = None if isinstance(scalar(text), str) else "'"
            if any(end in text for end in _ENDS_OF_LINES):  # single quotes would fold them into spaces
                style = '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_str)
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None}
    return str(yaml.dump(_escaped(data), Dumper=Dumper, width=_WIDTH, **options))


def document(pipeline: Registry) -> dict[str, Any]:
    """Returns the pipeline as the data of a file."""
    options = {"on_error": pipeline.on_error, "max_dead_letters": pipeline.max_dead_letters}
    usual = {"on_error": "dead_letters", "max_dead_letters": None}
    given = {name: value for name, value in options.items() if value != usual[name]}
    return {"pipeline": pipeline.name, **given, "collections": _Blocks.of(pipeline).written}


def _escaped(data: Any) -> Any:
    """Returns data in which no text has a reference to a parameter. Keys have none."""
    if isinstance(data, dict):
        return {key: _escaped(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_escaped(value) for value in data]
    return data.replace("${", "$${") if isinstance(data, str) else data


@attrs.define
class _Blocks:
    """The blocks of a file, one for each collection with a name in it, in the order of the calls.

    A block is a chain of steps. It ends before a step that reads another collection, and at a collection that a later
    block reads.
    """

    ends: set[Node] = attrs.field(factory=set)
    written: dict[str, Any] = attrs.field(factory=dict)
    _names: dict[Node, str] = attrs.field(factory=dict)
    _latest: Node | None = None
    _current: str = ""

    @classmethod
    def of(cls, pipeline: Registry) -> _Blocks:
        first = cls()
        for number, call in enumerate(pipeline.calls):
            before = pipeline.calls[number - 1].made if number else None
            first._read_by(call, before)
        blocks = cls(first.ends)
        for call in pipeline.calls:
            blocks._add(call)
        return blocks

    def _read_by(self, call: Call, before: Node | None) -> None:
        """Notes the collections that a call reads, other than the one that the call before it made."""
        owner = _owner(call)
        if owner is not None and owner is not before:
            self.ends.add(owner)
        _data(call, self._ends_at)

    def _ends_at(self, node: Node) -> str:
        self.ends.add(node)
        return ""

    def _add(self, call: Call) -> None:
        owner = _owner(call)
        writes = call.name == "write"
        if owner is None:
            self._begin(call, _data(call, self._name))
        else:
            if owner is not self._latest or (owner in self.ends and not writes):
                self._current = self._free(call.arguments()["name"] if writes else call.made.name)
                self.written[self._current] = {"from": self._name(owner)}
            self.written[self._current].setdefault("steps", []).append(_step(call, self._name))
        self._latest = call.made
        if not writes:
            self._names[call.made] = self._current

    def _begin(self, call: Call, data: Any) -> None:
        """Begins a block with a source, or with a step that reads several collections."""
        self._current = self._free(call.arguments()["name"] if call.name == "read" else call.made.name)
        if call.name == "read":
            data = {key: value for key, value in data.items() if key != "name"}
            data = data["source"] if [*data] == ["source"] else data
        self.written[self._current] = {_word(call): data}

    def _name(self, node: Node) -> str:
        return self._names[node]

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.written:
            name, number = f"{wanted}_{number}", number + 1
        return name


def _is_cogroup(subject: object) -> bool:
    return hasattr(subject, "sides")


def _word(call: Call) -> str:
    return "cogroup" if call.positional and _is_cogroup(call.positional[0]) else call.name


def _owner(call: Call) -> Node | None:
    """Returns the node on which a step was called; None for a source or a step that reads several collections."""
    (subject,) = call.positional[:1] or (None,)
    if isinstance(subject, Grouped):
        return subject.node
    return subject.node if isinstance(subject, Handle) and "self" in call.parameters() else None


def _step(call: Call, name: Any) -> dict[str, Any]:
    data, subject = _data(call, name), call.positional[0]
    if not isinstance(subject, Grouped):
        return {call.name: data}
    keys = subject.keys[0] if len(subject.keys) == 1 else list(subject.keys)
    grouping = keys if subject.name is None else {"keys": list(subject.keys), "name": subject.name}
    return {"group_by": grouping, call.name: data}


def _data(call: Call, name: Any) -> Any:
    """Returns the arguments of a call as data, without the collection or pipeline on which it was called."""
    arguments, parameters = dict(call.arguments()), dict(call.parameters())
    subject = arguments.pop("self", None)
    parameters.pop("self", None)
    writer = Writer(call.made.name, name)
    if call.name == "read":
        return {key: writer.data(value) for key, value in arguments.items()}
    if call.name in _OF_EXPRESSIONS:
        arguments = {key: one if key == "side" else _columns_of(one) for key, one in arguments.items()}
    data = call_data(arguments, parameters, writer.data)
    if _is_cogroup(subject):
        sides = {side: name(one.node) for side, one in subject.sides.items()}
        return {"collections": sides, "by": data}
    return data


def _columns_of(given: Any) -> Any:
    """Returns arguments in which the names of columns are expressions."""
    if isinstance(given, str):
        return nw.col(given)
    if isinstance(given, dict):
        return {key: _columns_of(one) for key, one in given.items()}
    return [_columns_of(one) for one in given] if isinstance(given, list | tuple) else given
