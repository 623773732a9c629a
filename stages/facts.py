"""Serialization: conversion of attrs classes to facts, which are plain data for JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

T = TypeVar("T")

SPARSE: Final[Mapping[str, bool]] = {"sparse": True}
"""The metadata of an attrs field that is left out of the facts if it has its default."""

_CONVERTER: Final = Converter(detailed_validation=False)

# `json.dumps` would create an encoder in each call.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_ORDERED: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


def _is_plain(declared: object) -> bool:
    """True for the type of summaries and histograms, which are facts already. It saves a slow conversion."""
    return declared == dict[str, Any]


_CONVERTER.register_unstructure_hook_func(_is_plain, lambda facts: facts)
_CONVERTER.register_structure_hook_func(_is_plain, lambda facts, _: facts)


@_CONVERTER.register_unstructure_hook_factory(attrs.has)
def _facts_of(kind: type[attrs.AttrsInstance]) -> Callable[[Any], dict[str, Any]]:
    """Creates the function that converts values of an attrs class to facts. Called once for each class."""
    sparse = [field.name for field in attrs.fields(kind) if field.metadata.get("sparse")]
    left_out: dict[str, Any] = {name: override(omit_if_default=True) for name in sparse}
    return make_dict_unstructure_fn(kind, _CONVERTER, **left_out)


def to_facts(value: Any, kind: Any = None) -> Any:
    """Converts a value to plain data for JSON; an attrs object becomes a dict of its fields.

    `kind` is the declared type of the value, if it is not its class.
    """
    return _CONVERTER.unstructure(value, unstructure_as=kind)


def from_facts(kind: type[T], facts: Any) -> T:
    """Converts facts to a value of this type. Keys of mappings may be text, as JSON makes them.

    Missing facts get their default, unknown ones are ignored. The names of the fields select the class of a union.
    Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for facts of another type.
    """
    return _CONVERTER.structure(facts, kind)


def to_json(value: Any, *, ordered: bool = False) -> bytes:
    """Converts a value to a line of JSON. If `ordered`, names are sorted, so that equal values have equal bytes."""
    return (_ORDERED if ordered else _ENCODER).encode(to_facts(value)).encode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """Converts JSON with the facts of a value, as `to_json` returns it, to a value of this type."""
    return from_facts(kind, json.loads(text))
