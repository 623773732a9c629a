"""The JSON schema of pipeline files, for editors. It is made from the functions and classes that a file can call."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from inspect import Parameter
from pathlib import Path
from typing import Any, Final, get_args

from beamlike.api.pipeline import Collection
from beamlike.rows.dead_letters import OnError
from beamlike.spec.kinds import (
    Kind,
    by_name,
    constructors,
    grouped_methods,
    heads,
    kind_of,
    methods,
    settable,
)
from beamlike.spec.parameters import TYPES
from beamlike.spec.public import public
from stages.strategies.base import WatermarkStrategy
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

PATH: Final = Path(__file__).parent / "pipeline.schema.json"
"""The file of the schema in the package."""

_BASES: Final = {"WindowFn": WindowFn, "Trigger": Trigger, "WatermarkStrategy": WatermarkStrategy}
_NAMED: Final = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
_SCALARS: Final = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "Duration": "string", "AnyPath": "string",
}  # fmt: skip
_TEXT: Final = {"type": "string"}


def schema_text() -> str:
    """Returns the text of the schema's file."""
    return json.dumps(schema(), indent=1) + "\n"


def schema() -> dict[str, Any]:
    """Returns the JSON schema of a pipeline file."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A pipeline of beamlike",
        "type": "object",
        "required": ["pipeline", "collections"],
        "additionalProperties": False,
        "properties": {
            "pipeline": {**_TEXT, "description": "The name of the pipeline."},
            "on_error": {"enum": list(get_args(OnError))},
            "max_dead_letters": {"type": ["integer", "number", "null"]},
            "parameters": {"type": "object", "additionalProperties": _parameter()},
            "collections": {"type": "object", "additionalProperties": {"$ref": "#/definitions/collection"}},
        },
        "definitions": {
            "collection": _collection(),
            "step": {"anyOf": [_bare_step(), _step(), _grouped()]},
            "reference": {**_TEXT, "pattern": _NAMED, "description": "A function or class: module:name."},
            "expression": {
                "type": ["string", "number", "boolean"],
                "description": "An expression: points > 3.",
            },
            "aggregate": {**_TEXT, "description": "An aggregate: sum(points)."},
            "type": {"type": ["string", "object"], "description": "A type: Int64, str, List(Int64)."},
            "schema": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"$ref": "#/definitions/type"}},
                    {"$ref": "#/definitions/reference"},
                ]
            },
            **{base: _objects(_of_base(kind)) for base, kind in _BASES.items()},
            "object": _objects(constructors()),
        },
    }


def _parameter() -> dict[str, Any]:
    kinds = {"enum": [*TYPES]}
    full = {"type": "object", "properties": {"type": kinds, "default": {}}, "additionalProperties": False}
    return {"anyOf": [kinds, full]}


def _collection() -> dict[str, Any]:
    starts: dict[str, Any] = {
        "from": {**_TEXT, "description": "The name of a collection above."},
        "sql": {**_TEXT, "description": "A query over the collections above."},
        "read": _arguments(heads()["read"], "read", given=("name",)),
        "cogroup": {
            "type": "object",
            "required": ["collections", "by"],
            "properties": {
                "collections": {"type": "object", "additionalProperties": _TEXT},
                "by": _arguments(heads()["cogroup"], "by"),
            },
        },
        **{name: _arguments(heads()[name], name) for name in ("flatten", "changes")},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**starts, "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}}},
        "oneOf": [{"required": [name]} for name in starts],
    }


def _bare_step() -> dict[str, Any]:
    return {"enum": [*methods()]}


def _step() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _arguments(method, name) for name, method in methods().items()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _grouped() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "group_by": _arguments(Collection.group_by, "group_by"),
            **{name: _arguments(method, name) for name, method in grouped_methods().items()},
        },
        "required": ["group_by"],
        "additionalProperties": False,
        "minProperties": 2,
        "maxProperties": 2,
    }


def _of_base(kind: type) -> list[str]:
    made = ((name, public(name)) for name in constructors())
    return [name for name, one in made if isinstance(one, type) and issubclass(one, kind)]


def _objects(names: Iterable[str]) -> dict[str, Any]:
    names = [*names]
    built = {name: _arguments(public(name), name) for name in names}
    return {
        "anyOf": [
            {"enum": names},
            {"$ref": "#/definitions/reference"},
            {
                "type": "object",
                "properties": built,
                "patternProperties": {_NAMED: {}},
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    }


def _arguments(function: Callable[..., Any], name: str, given: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the schema of a call's arguments: a mapping of all, or the first alone."""
    known = {key: one for key, one in settable(function).items() if key not in given}
    free = next((one for one in known.values() if one.kind is one.VAR_KEYWORD), None)
    properties = {key: _argument(name, one) for key, one in known.items() if one is not free}
    mapping: dict[str, Any] = {"type": "object", "properties": properties}
    mapping["additionalProperties"] = False if free is None else _argument(name, free)
    first = next(iter(known.values()), None)
    alone = {"type": "null"} if first is None else _argument(name, first)
    choices = [alone, mapping]
    if first is not None and first.kind is first.VAR_POSITIONAL:
        items = [alone] if free is None else [alone, mapping]
        choices.append({"type": "array", "items": {"anyOf": items}})
    if all(
        one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        for one in known.values()
    ):
        choices.append({"type": "null"})
    return {"description": _first_sentence(function), "anyOf": choices}


def _first_sentence(function: Callable[..., Any]) -> str:
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".") + "."


def _argument(owner: str, parameter: Parameter) -> dict[str, Any]:
    kind = kind_of(owner, parameter)
    found = _of_kind(kind, str(parameter.annotation))
    several = parameter.kind is parameter.VAR_POSITIONAL
    if by_name(owner, parameter) and kind not in (Kind.PLAIN, Kind.SCHEMA):
        return {"anyOf": [found, {"type": "object", "additionalProperties": found}]}
    return {"anyOf": [found, {"type": "array", "items": found}]} if several else found


def _also(words: list[str]) -> list[str]:
    return [name for word, name in (("Duration", "number"), ("None", "null")) if word in words]


def _of_kind(kind: Kind, annotation: str) -> dict[str, Any]:
    words = re.findall(r"\w+", annotation)
    match kind:
        case Kind.COLLECTION:
            return _TEXT
        case Kind.EXPRESSION | Kind.CONDITION:
            return {"$ref": "#/definitions/expression"}
        case Kind.AGGREGATE | Kind.SCHEMA | Kind.TYPE:
            return {"$ref": f"#/definitions/{kind}"}
        case Kind.OBJECT:
            base = next((word for word in words if word in _BASES), "object")
            text = [_TEXT] if "CombinerName" in words or "str" in words else []
            return {"anyOf": [{"$ref": f"#/definitions/{base}"}, *text]}
        case Kind.WITHIN:
            return {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2, "maxItems": 2}
        case Kind.ROWS:
            return {"type": "array", "items": {"type": "object"}}
        case Kind.PLAIN if words and set(words) <= {*_SCALARS, "None"}:
            kinds = [_SCALARS[word] for word in words if word in _SCALARS]
            # A duration may be a number of seconds, and a parameter stands for a value of any type.
            return {"type": sorted({*kinds, "string", *_also(words)})}
    return {}


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
