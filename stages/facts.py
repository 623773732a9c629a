"""Conversion of values to facts, plain data that JSON can hold, and back, by the types that fields declare."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

T = TypeVar("T")

SPARSE: Final[Mapping[str, bool]] = {"sparse": True}
"""Metadata of a field that is left out of the facts if it has its default."""

_CONVERTER: Final = Converter(detailed_validation=False)


def _is_plain(declared: object) -> bool:
    """True for summaries and histograms, which are facts already; converting all that is in them takes long."""
    return declared == dict[str, Any]


_CONVERTER.register_unstructure_hook_func(_is_plain, lambda facts: facts)
_CONVERTER.register_structure_hook_func(_is_plain, lambda facts, _: facts)


@_CONVERTER.register_unstructure_hook_factory(attrs.has)
def _facts_of(kind: type[attrs.AttrsInstance]) -> Callable[[Any], dict[str, Any]]:
    """Makes, once for each class, the function that converts its values to facts."""
    sparse = [field.name for field in attrs.fields(kind) if field.metadata.get("sparse")]
    left_out: dict[str, Any] = {name: override(omit_if_default=True) for name in sparse}
    return make_dict_unstructure_fn(kind, _CONVERTER, **left_out)


def to_facts(value: Any, kind: Any = None) -> Any:
    """Converts the value to data that JSON can hold: a class as its fields by name.

    `kind`: its type, if not its class.
    """
    return _CONVERTER.unstructure(value, unstructure_as=kind)


def from_facts(kind: type[T], facts: Any) -> T:
    """Converts facts to a value of this type, also after JSON has made text of the keys of mappings.

    Missing facts have their default, and unknown ones are ignored. A union is told apart by the
    names of the fields. Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for facts of another type.
    """
    return _CONVERTER.structure(facts, kind)


def to_json(value: Any, *, ordered: bool = False) -> bytes:
    """Writes the value as a line of JSON; `ordered` by name, so that equal values have the same bytes."""
    return json.dumps(to_facts(value), separators=(",", ":"), sort_keys=ordered).encode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """Reads a value of this type that `to_json` wrote, or any JSON with the same facts."""
    return from_facts(kind, json.loads(text))
