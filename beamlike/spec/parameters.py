"""Parameters of a pipeline file: `parameters: {day: date}`, which `--set day=2026-01-01` sets and `${day}` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

import attrs

from beamlike.errors import PlanError, listed, nearest
from beamlike.expressions.grammar import as_text
from beamlike.spec.document import Item
from windowing.time import microseconds

_REFERENCE: Final = re.compile(r"\$(\$\{)|\$\{(\w*)(\}?)")
_MARK: Final = re.compile(r"parameter_of_the_file_([0-9a-f]*)_end")
"""The name of a parameter in an expression. No mark begins with another, and `ast` leaves it as it is."""


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _duration(text: str) -> timedelta:
    return timedelta(microseconds=microseconds(text))


TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _bool,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "duration": _duration,
}
"""The types of parameters, each with the function that reads its text."""


class WrongSetting(PlanError):
    """A parameter is unknown, missing, or of another type."""


@attrs.frozen
class Parameters:
    """The values of the parameters of a file, by name."""

    values: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, declared: Item | None, settings: Mapping[str, Any]) -> Parameters:
        """Returns the values: the settings, and the defaults of the file for the others. Raises `WrongSetting`."""
        items = {} if declared is None else declared.mapping("parameters")
        for name in settings:
            if name not in items:
                hint = nearest(name, items) or (f"; it has {listed(items)}" if items else "; it has none")
                raise WrongSetting(f"the file has no parameter {name!r}{hint}")
        found = {name: _value(name, item, settings) for name, item in items.items()}
        return cls(found)

    def substituted(self, item: Item) -> Any:
        """Returns the text of an item with the values of its parameters; a value, if a parameter is the whole text."""
        text = item.value
        if not isinstance(text, str) or "${" not in text:
            return text
        whole = _REFERENCE.fullmatch(text)
        if whole and whole[3]:
            return self.named(whole[2], item)
        return self.in_text(text, item)

    def in_text(self, text: str, item: Item) -> str:
        """Returns a part of the text of an item with the values of its parameters as text."""
        return _REFERENCE.sub(lambda one: one[1] or as_text(self._found(one, item)), text)

    def marked(self, item: Item) -> tuple[str, dict[str, Any]]:
        """Returns an expression in which each parameter is a name, and the values by these names."""
        names: dict[str, Any] = {}

        def mark(found: re.Match[str]) -> str:
            if found[1]:
                return found[1]
            name = f"parameter_of_the_file_{found[2].encode().hex()}_end"
            names[name] = self._found(found, item)
            return name

        return _REFERENCE.sub(mark, item.text("an expression")), names

    def _found(self, found: re.Match[str], item: Item) -> Any:
        if not found[3]:
            raise item.fault("${ begins the name of a parameter, such as ${day}; write $${ for the text")
        return self.named(found[2], item)

    def named(self, name: str, item: Item) -> Any:
        """Returns the value of a parameter. Raises `BadFile` at the item if there is none of this name."""
        if name not in self.values:
            hint = nearest(name, self.values) or "; declare it under 'parameters:', or write $${ for the text"
            raise item.fault(f"there is no parameter {name!r}{hint}")
        return self.values[name]


def _value(name: str, item: Item, settings: Mapping[str, Any]) -> Any:
    declared = {"type": item} if isinstance(item.value, str) else item.mapping(f"the parameter {name!r}")
    if isinstance(item.value, dict):
        item.require_keys(["type", "default"], f"the parameter {name!r}")
    kind = declared["type"].text("a type") if "type" in declared else "str"
    if kind not in TYPES:
        raise declared["type"].fault(
            f"there is no type {kind!r}{nearest(kind, TYPES) or f'; there are {listed(TYPES)}'}"
        )
    if name in settings:
        try:
            return _read(settings[name], kind)
        except (ValueError, KeyError):
            raise WrongSetting(f"{name}={settings[name]}: expected {kind}") from None
    if "default" not in declared:
        raise WrongSetting(f"the parameter {name!r} is not set; give --set {name}={kind.upper()}")
    default = declared["default"]
    try:
        return _read(default.value, kind)
    except (ValueError, KeyError, TypeError):
        raise default.fault(f"the default of {name!r} must be {kind}, not {default.shown()}") from None


def _read(given: Any, kind: str) -> Any:
    if given is None or (not isinstance(given, str) and kind != "str"):
        return given
    return TYPES[kind](given if isinstance(given, str) else as_text(given))


def without_marks(text: str) -> str:
    """Returns a message about an expression with parameters as the file has them."""
    return _MARK.sub(lambda found: f"${{{bytes.fromhex(found[1]).decode()}}}", text)
