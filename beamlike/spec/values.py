"""Reads the values of a file: expressions, types, objects such as `{FixedWindows: 1m}`, and functions by name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

import attrs
import polars as pl

from beamlike.api.sides import as_singleton, lookup
from beamlike.errors import BadFile, PlanError, UnknownColumn, listed, nearest
from beamlike.expressions.grammar import BadExpression, Reader, aggregate_from_text, expression_from_text
from beamlike.expressions.other_names import other_name
from beamlike.io.kafka.codecs import Json
from beamlike.io.memory import Rows
from beamlike.rows.type_text import BadType, dtype_from_text
from beamlike.spec.document import Item
from beamlike.spec.kinds import Kind, by_name, constructors, kind_of, settable
from beamlike.spec.parameters import Parameters, without_marks
from beamlike.spec.public import public
from beamlike.spec.references import FUNCTION, REFERENCE, class_at, imported, object_at, place_of
from beamlike.system.arguments import argument_instead
from windowing.time import is_duration

_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None, as in user is None", "none": "None"}
_CODECS: Final = {"str": str, "bytes": bytes}


@attrs.frozen
class Values:
    """The reader of values. `collections` has the collections that the file has declared so far, and `names` all."""

    parameters: Parameters
    collections: dict[str, Any]
    names: tuple[str, ...] = ()

    def build(self, function: Callable[..., Any], name: str, item: Item, /, **given: Any) -> Any:
        """Calls a function or class with the arguments of an item, and with those in `given`.

        A scalar, a list or a constructor is the first argument; a mapping has the arguments by name.
        """
        known = {key: one for key, one in settable(function).items() if key not in given}
        positional, named = self._arguments(name, known, item)
        _require_all(name, known, len(positional), named, item)
        try:
            return function(*positional, **given, **named)
        except BadFile:
            raise
        except (PlanError, TypeError, ValueError, OverflowError) as error:
            key = next((key for key in named if re.search(rf"\b{key}\b", str(error))), None)
            item_of_key = (
                item if key is None or not isinstance(item.value, dict) else item.value.get(key, item)
            )
            told = f"{_without_path(name, error)}{_quotes(name, error)}"
            raise item_of_key.fault(in_words_of_files(told)) from error

    def _arguments(
        self, name: str, known: Mapping[str, Parameter], item: Item
    ) -> tuple[list[Any], dict[str, Any]]:
        several = next((one for one in known.values() if one.kind is one.VAR_POSITIONAL), None)
        free = next((one for one in known.values() if one.kind is one.VAR_KEYWORD), None)
        if item.value is None:
            return [], {}
        if self._by_key(item, known, free, alone=len(known) == 1):
            return self._by_name(name, known, item, several, free)
        if not known:
            raise item.fault(f"{name} takes nothing")
        if several is not None:
            return self._several(name, item, several, free)
        first = next(iter(known.values()))
        return [], {first.name: self.argument(name, first, item)}

    def _by_key(
        self, item: Item, known: Mapping[str, Parameter], free: Parameter | None, *, alone: bool
    ) -> bool:
        """True if the keys of an item are names of arguments; false if it is the first argument itself."""
        if not isinstance(item.value, dict):
            return False
        if free is not None:
            return True
        if any(key in known for key in item.value):
            return True
        return not alone and not _is_constructor(item)

    def _by_name(
        self,
        name: str,
        known: Mapping[str, Parameter],
        item: Item,
        several: Parameter | None,
        free: Parameter | None,
    ) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for key, one in item.mapping(name).items():
            parameter = known.get(key)
            if several is not None and parameter is several and free is None:
                positional = self._several(name, one, several, None)[0]
            elif parameter is not None and parameter.kind not in (
                Parameter.VAR_KEYWORD,
                Parameter.VAR_POSITIONAL,
            ):
                named[key] = self.argument(name, parameter, one)
            elif free is not None:
                named[key] = self.argument(name, free, one)
            else:
                hint = argument_instead(name, key, known).replace("=", "")
                hint = f"; it has {listed(known)}" if hint.startswith("; it has") else hint
                raise item.fault(f"{name} has no {key!r}{hint}", key=key)
        return positional, named

    def _several(
        self, name: str, item: Item, parameter: Parameter, free: Parameter | None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Reads a list of arguments, in which a mapping has arguments by name if there may be any."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for one in item.value if isinstance(item.value, list) else [item]:
            if free is not None and isinstance(one.value, dict):
                named |= {key: self.argument(name, free, value) for key, value in one.value.items()}
            else:
                positional.append(self.argument(name, parameter, one))
        return positional, named

    def argument(self, owner: str, parameter: Parameter, item: Item) -> Any:
        """Returns the argument for a parameter of the function or class `owner`."""
        kind, place = kind_of(owner, parameter), place_of(owner, parameter)
        if (
            by_name(owner, parameter)
            and kind not in (Kind.PLAIN, Kind.SCHEMA)
            and isinstance(item.value, dict)
        ):
            return {key: self.of_kind(kind, one, place) for key, one in item.value.items()}
        return self.of_kind(kind, item, place)

    def of_kind(self, kind: Kind, item: Item, place: str = FUNCTION) -> Any:
        """Returns the value of an item, as an argument of a kind. `place` is the kind of object that is expected."""
        if item.value is None:
            return None
        match kind:
            case Kind.COLLECTION:
                return self.collection(item)
            case Kind.EXPRESSION | Kind.CONDITION:
                return self.expression(item, functions=kind is Kind.CONDITION)
            case Kind.AGGREGATE:
                return self._aggregate(item)
            case Kind.SCHEMA:
                return self._schema(item)
            case Kind.TYPE:
                return self._type(item)
            case Kind.WITHIN:
                return self._within(item)
            case Kind.CODEC if isinstance(item.value, str):
                return _CODECS[item.value] if item.value in _CODECS else self._type(item)
            case Kind.OBJECT | Kind.CODEC:
                return self.object(item, place)
            case Kind.ROWS:
                return [self.plain(one) for one in item.listed("rows")]
        return self.plain(item)

    def plain(self, item: Item) -> Any:
        """Returns plain data, in which parameters are replaced by their values."""
        if isinstance(item.value, list):
            return [self.plain(one) for one in item.value]
        if isinstance(item.value, dict):
            return {key: self.plain(one) for key, one in item.value.items()}
        return self.parameters.substituted(item)

    def collection(self, item: Item) -> Any:
        """Returns a collection of the file by its name."""
        name = self.parameters.in_text(item.text("the name of a collection"), item)
        if name not in self.collections:
            if name in self.names:
                raise item.fault(f"the collection {name!r} is declared below; move it above")
            known = [*self.collections]
            hint = (
                nearest(name, known) or f"; above are {listed(known)}"
                if known
                else "; none is declared above"
            )
            raise item.fault(f"there is no collection {name!r}{hint}")
        return self.collections[name]

    def expression(self, item: Item, *, functions: bool = False) -> Any:
        """Returns the expression of a text, or a function if `functions` allows one; other scalars are literals."""
        if functions and (_is_constructor(item) or _is_reference(item)):
            return self.object(item, FUNCTION)
        if not isinstance(item.value, str):
            return self.plain(item)
        text, names = self.parameters.marked(item)
        special = {"lookup": self._table, "as_singleton": self._table}
        try:
            return expression_from_text(text, special, names)
        except BadExpression as error:
            raise self._misread(item, error) from None

    def _misread(self, item: Item, error: BadExpression) -> BadFile:
        shift = len(item.value) - len(item.value.lstrip()) if isinstance(item.value, str) else 0
        at = 0 if "${" in item.value else error.column + shift
        return item.fault(without_marks(str(error)), line=error.line, column=at)

    def _table(self, reader: Reader, call: ast.Call) -> Any:
        """Reads `lookup(ages, on='user')` in an expression."""
        function = lookup if isinstance(call.func, ast.Name) and call.func.id == "lookup" else as_singleton
        given, named = reader.arguments(call, function, reader.column_or_value)
        if given and isinstance(given[0], str):
            if given[0] not in self.collections:
                raise reader.fault(
                    call, f"there is no collection {given[0]!r}{nearest(given[0], self.collections)}"
                )
            given[0] = self.collections[given[0]]
        return reader.called(call, function, given, named)

    def _aggregate(self, item: Item) -> Any:
        if not isinstance(item.value, str):
            raise item.fault(f"an aggregate is text such as sum(points), not {item.shown()}")
        text, names = self.parameters.marked(item)
        try:
            return aggregate_from_text(text, lambda name: object_at(name, item, "CombineFn"), names)
        except BadExpression as error:
            raise self._misread(item, error) from None

    def _schema(self, item: Item) -> Any:
        if _is_reference(item):
            return imported(item.value, item)
        return {key: self._type(one) for key, one in item.mapping("a schema").items()}

    def _type(self, item: Item) -> Any:
        if isinstance(item.value, dict):
            return pl.Struct({key: self._type(one) for key, one in item.value.items()})
        try:
            return dtype_from_text(self.parameters.in_text(item.text("a type"), item))
        except BadType as error:
            raise item.fault(str(error), column=error.column) from None

    def _within(self, item: Item) -> Any:
        pair = item.listed("within")
        if len(pair) != 2:
            raise item.fault(f"within has two durations, such as [0s, 1h], not {len(pair)}")
        return tuple(
            self.expression(one)
            if isinstance(one.value, str) and not is_duration(self.plain(one))
            else self.plain(one)
            for one in pair
        )

    def object(self, item: Item, place: str) -> Any:
        """Returns the object of a constructor or of `module:name`, of the kind that is expected."""
        if isinstance(item.value, list):
            return [self.object(one, place) for one in item.value]
        if isinstance(item.value, str):
            return self._of_text(item, place)
        if not _is_constructor(item):
            raise item.fault(f"write an object as {{Name: arguments}} or module:name, not {item.shown()}")
        ((name, arguments),) = item.value.items()
        if REFERENCE.fullmatch(name):
            return self.build(class_at(name, item, place), name, arguments)
        if name not in constructors():
            raise item.fault(f"there is no {name!r}{_nearest_constructor(name)}", key=name)
        if name == "Rows":
            return self._rows(arguments)
        return self.build(public(name), name, arguments)

    def _of_text(self, item: Item, place: str) -> Any:
        """Returns the object of a class without arguments or of `module:name`; any other text as it is."""
        if _is_reference(item):
            return object_at(item.value, item, place)
        if item.value in constructors():
            return self.build(public(item.value), item.value, attrs.evolve(item, value=None))
        if item.value[:1].isupper():
            if (call := re.fullmatch(r"(\w+)\((.*)\)", item.value)) and call[1] in constructors():
                raise item.fault(f"write {{{call[1]}: {call[2] or '{}'}}} for {item.value!r}")
            raise item.fault(f"there is no {item.value!r}{_nearest_constructor(item.value)}")
        return self.plain(item)

    def _rows(self, item: Item) -> Any:
        """Returns rows of the file. With a schema, their values are read as those of JSON are."""
        if not isinstance(item.value, dict) or "schema" not in item.value or "rows" not in item.value:
            return self.build(Rows, "Rows", item)
        schema = self.of_kind(Kind.SCHEMA, item.value["schema"])
        rows = item.value["rows"].listed("rows")
        lines = pl.Series([json.dumps(self.plain(one)).encode() for one in rows], dtype=pl.Binary)
        decoded = Json(schema).decode(lines, "")
        if decoded.wrong:
            number, reason = decoded.wrong[0]
            raise rows[number].fault(f"Rows: {reason}")
        rest = {key: one for key, one in item.value.items() if key not in ("rows", "schema")}
        return self.build(Rows, "Rows", attrs.evolve(item, value=rest), rows=decoded.frame)


def _require_all(
    name: str, known: Mapping[str, Parameter], positional: int, named: Mapping[str, Any], item: Item
) -> None:
    """Raises `BadFile` if an argument without default is missing."""
    places = [
        key for key, one in known.items() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    given = {*places[:positional], *named}
    needed = [
        key
        for key, one in known.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if missing := [key for key in needed if key not in given]:
        several = [key for key, one in known.items() if one.kind is one.VAR_POSITIONAL and positional]
        write = ", ".join(f"{key}: ..." for key in dict.fromkeys((*needed, *several, *given)))
        raise item.fault(f"{name} has no {' and no '.join(map(repr, missing))}; write {name}: {{{write}}}")


def _quotes(step: str, error: Exception) -> str:
    """Returns a clause for a name that may be a text without quotes, or a word of YAML; empty for other errors."""
    found = re.search(r"there is no column '([^']*)'", str(error))
    if (
        found is None
        or step not in ("filter", "with_columns", "select")
        or not isinstance(error, UnknownColumn)
    ):
        return ""
    word = _CONSTANTS.get(found[1].lower())
    return f"; write {word}" if word else f"; a text is in quotes, as in user == {found[1]!r}"


def in_words_of_files(text: str) -> str:
    """Returns the text of an error with examples as a file has them, such as `{FixedWindows: 2m}`."""
    text = re.sub(r"aggregate\((\w+)=bl\.(\w+\(\))\)", r"aggregate: {\1: \2}", text)
    text = re.sub(r"\b(?:read|write)\('(\w+)', bl\.(\w+)\('(\w+)'\)\)", r"{name: \1, sink: {\2: \3}}", text)
    text = re.sub(r"\bbl\.([A-Z]\w*)\('([^']*)'\)", r"{\1: \2}", text)
    text = re.sub(r"\bbl\.([A-Z]\w*)\(\)", r"\1", text)
    return re.sub(r"(?<![\w'\"/.\\-])bl\.(?=[A-Za-z_])", "", text)  # not within a name of the user's


def _nearest_constructor(name: str) -> str:
    other = other_name(name)
    return f"; did you mean {other!r}?" if other in constructors() else nearest(name, constructors())


def _is_reference(item: Item) -> bool:
    return isinstance(item.value, str) and bool(REFERENCE.fullmatch(item.value))


def _is_constructor(item: Item) -> bool:
    """True for a mapping with a single key that names a class or function."""
    if not isinstance(item.value, dict) or len(item.value) != 1:
        return False
    (name,) = item.value
    return name in constructors() or bool(REFERENCE.fullmatch(name)) or name[:1].isupper()


def _without_path(name: str, error: Exception) -> str:
    text = str(error)
    return text if isinstance(error, PlanError) else f"{name}: {text.replace('__init__()', name)}"
