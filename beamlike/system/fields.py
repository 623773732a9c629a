"""Validators for fields of public declarations. Their errors name the class, the field and the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def whole_number(least: int) -> Validator:
    """Returns a validator for a whole number of at least `least`. None is allowed if it is the field's default."""

    def check(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is None and attribute.default is None:
            return
        is_number = type(value) is int
        if not is_number or value < least:  # type: ignore[operator]
            kind = ValueError if is_number else TypeError
            raise kind(
                f"{_field(owner, attribute)} must be a whole number of at least {least}, not {value!r}"
            )

    return check


def true_or_false(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Raises `TypeError` unless the value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{_field(owner, attribute)} must be True or False, not {value!r}")


def text(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Raises `TypeError` unless the value is text. None is allowed if it is the field's default."""
    if not isinstance(value, str) and not (value is None and attribute.default is None):
        raise TypeError(f"{_field(owner, attribute)} must be text, not {value!r}")


def function(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Raises `TypeError` unless the value is callable."""
    if not callable(value):
        raise TypeError(f"{_field(owner, attribute)} must be a function, not {value!r}")


def as_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Copies options, as a converter whose argument type checkers understand, which that of `dict` is not."""
    return dict(given)


def _field(owner: object, attribute: attrs.Attribute[Any]) -> str:
    return f"{type(owner).__name__}: {attribute.alias}"
