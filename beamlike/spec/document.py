"""YAML as values with their places. Nothing is constructed: a scalar is text, a number, true, false or null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from beamlike.errors import BadFile, missing_package, nearest
from beamlike.rows.yaml_scalars import scalar

_MOST: Final = 200_000
"""The greatest number of values of a file, with those that aliases repeat."""

_LONGEST: Final = 1_000_000
_DEEPEST: Final = 50
_TOO_DEEP: Final = (
    f"lists and mappings are nested more than {_DEEPEST} levels deep; a pipeline needs some ten"
)


@attrs.frozen
class Item:
    """A value of a file: a scalar, a list of items, or a dict of items by key, with its place (from 1).

    `exact` is true if the text of a scalar begins at its place and has no escapes, so that a position in the text is
    one in the file.
    """

    value: Any
    file: str
    line: int
    column: int
    exact: bool = False
    keys: dict[str, tuple[int, int]] = attrs.field(factory=dict)

    def fault(self, message: str, *, key: str | None = None, line: int = 0, column: int = 0) -> BadFile:
        """Returns an error at the place of the item or of one of its keys, or at a position in its text."""
        at = (self.line, self.column) if key is None else self.keys.get(key, (self.line, self.column))
        if self.exact and key is None:
            at = (at[0] + line, at[1] + column if line == 0 else column + 1)
        return BadFile(f"{self.file}:{at[0]}:{at[1]}: {message}")

    def mapping(self, what: str) -> dict[str, Item]:
        """Returns the items by key. Raises `BadFile` unless the item is a mapping; `what` names it."""
        if not isinstance(self.value, dict):
            raise self.fault(f"{what} must be a mapping such as 'key: value', not {self.shown()}")
        return self.value

    def listed(self, what: str) -> list[Item]:
        """Returns the items of a list. Raises `BadFile` unless the item is one; `what` names it."""
        if not isinstance(self.value, list):
            raise self.fault(f"{what} must be a list, with '- ' before each item, not {self.shown()}")
        return self.value

    def text(self, what: str) -> str:
        """Returns the text of a scalar. Raises `BadFile` unless the item is text; `what` names it."""
        if not isinstance(self.value, str):
            raise self.fault(f"{what} must be text, not {self.shown()}")
        return self.value

    def require_keys(self, known: Iterator[str] | list[str], what: str) -> None:
        """Raises `BadFile` for a key that is not in `known`."""
        names = [*known]
        for key in self.mapping(what):
            if key not in names:
                hint = nearest(key, names) or f"; it may have {', '.join(names)}"
                raise self.fault(f"{what} has no {key!r}{hint}", key=key)

    def shown(self) -> str:
        """Describes the value in errors."""
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        return "nothing" if self.value is None else repr(self.value)


def parse(text: str, file: str) -> Item:
    """Parses a YAML document. Raises `BadFile` with the place of a fault."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise missing_package("pipelines as files need PyYAML", "yaml", error) from None
    if len(text) > _LONGEST:
        raise BadFile(
            f"{file}:1:1: the file has more than {_LONGEST:,} characters; put rows into a file of their own"
        )
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise BadFile(f"{file}:1:1: {_TOO_DEEP}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = error.problem or error.context
        if "'\\t'" in str(reason):
            reason = "a tab; YAML is indented with spaces"
        else:
            reason = (
                f"this is no YAML ({reason}); write a text with signs such as ': ', {{, %, ! or # in quotes"
            )
        raise BadFile(f"{file}:{line}:{column}: {reason}") from error
    except yaml.YAMLError as error:
        raise BadFile(f"{file}:1:1: {str(error).splitlines()[0]}") from None
    if node is None:
        raise BadFile(f"{file}:1:1: the file is empty; it begins with 'pipeline: NAME'")
    return _Parser(file).item(node)


@attrs.define
class _Parser:
    """The converter of YAML's nodes. It refuses documents that aliases make endless or huge."""

    file: str
    count: int = 0
    open: list[Any] = attrs.field(factory=list)

    def item(self, node: Any) -> Item:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.count += 1
        if self.count > _MOST or any(node is one for one in self.open):
            raise BadFile(f"{self.file}:{line}:{column}: aliases make this too large, or contain themselves")
        if len(self.open) > _DEEPEST:
            raise BadFile(f"{self.file}:{line}:{column}: {_TOO_DEEP}")
        self.open.append(node)
        try:
            return self._item(node, line, column)
        finally:
            self.open.pop()

    def _item(self, node: Any, line: int, column: int) -> Item:
        kind = type(node).__name__
        if kind == "SequenceNode":
            return Item([self.item(one) for one in node.value], self.file, line, column)
        if kind == "MappingNode":
            return self._mapping(node, line, column)
        if node.style == "|":
            return Item(node.value, self.file, line, column)
        shift = 1 if node.style in ("'", '"') else 0
        value = node.value if node.style else scalar(node.value)
        one_line = node.start_mark.line == node.end_mark.line
        exact = one_line and node.end_mark.column - node.start_mark.column == len(node.value) + 2 * shift
        return Item(value, self.file, line, column + shift, exact)

    def _mapping(self, node: Any, line: int, column: int) -> Item:
        items, keys = dict[str, Item](), dict[str, tuple[int, int]]()
        for key, value in node.value:
            at = (key.start_mark.line + 1, key.start_mark.column + 1)
            if type(key).__name__ != "ScalarNode":
                raise BadFile(f"{self.file}:{at[0]}:{at[1]}: a key must be text")
            if key.value in items:
                raise BadFile(f"{self.file}:{at[0]}:{at[1]}: {key.value!r} is there twice")
            items[key.value], keys[key.value] = self.item(value), at
        return Item(items, self.file, line, column, keys=keys)
