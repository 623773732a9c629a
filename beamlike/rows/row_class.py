"""A class of rows that can be pickled together with its fields."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.rows.annotations import item_of, unwrapped
from beamlike.rows.row_classes import RowField, fields_of_class, is_row_class, learn

Fields = tuple[RowField, ...]


@attrs.frozen
class RowClass:
    """A class of rows, which is pickled with its fields.

    Spark's workers receive a class that is defined in a script by value. There, annotations that are text cannot be
    evaluated. So the fields of the class, and of classes in it, are pickled as well.
    """

    kind: type

    @property
    def fields(self) -> Fields:
        """The fields of the class, in order."""
        return fields_of_class(self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        known: dict[type, Fields] = {}
        _collect(self.kind, known)
        return _received, (self.kind, known)


def _received(kind: type, known: dict[type, Fields]) -> RowClass:
    learn(known)
    return RowClass(kind)


def _collect(annotation: Any, known: dict[type, Fields]) -> None:
    kind = unwrapped(annotation).kind
    if (item := item_of(kind)) is not None:
        _collect(item, known)
    elif is_row_class(kind) and kind not in known:
        known[kind] = fields_of_class(kind)
        for field in known[kind]:
            _collect(field.annotation, known)
