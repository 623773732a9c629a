"""State fields as attributes of a user's object: loaded at the first read, removed when their time to live is over."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

from stages.process.calls import Call
from stages.process.fields import FieldColumn


class Lazy:
    """A field that is loaded when a method first reads it; then it is a plain attribute of the object."""

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name, self.load = name, load

    def __get__(self, owner: Any, kind: type) -> Any:
        value = vars(owner)[self.name] = self.load()
        return value


class Lasting:
    """A field with a time to live: the time of each write is recorded."""

    def __init__(self, field: FieldColumn, call: Call) -> None:
        self.field, self.call = field, call
        self.value: Any = None
        self.written: int | None = None
        self._seen: Any = None
        self._looked = False
        self._gone: tuple[Any, int] | None = None

    def load(self, raw: Any, written: int | None) -> None:
        """Loads the value of the current key."""
        self.value, self.written = raw if self.field.plain else self.field.load(raw), written
        self._looked, self._gone = False, None

    def saved(self) -> tuple[Any, int | None]:
        """A copy of the value, for `restore`."""
        return deepcopy(self.value), self.written

    def restore(self, saved: tuple[Any, int | None]) -> None:
        """Sets the value back to what `saved` returned."""
        self.value, self.written = saved
        self._looked, self._gone = False, None

    def stored(self) -> Any:
        """The value as the column stores it; None if there is none."""
        return None if self.written is None else self.field.store(self.value)

    def called(self) -> None:
        """Completes a call of a method: a container that the method has changed counts as written."""
        if self._looked and self._image() != self._seen:
            self.written = self._clock
        elif self._gone is not None and self.written is None:  # a row of an earlier time may still see it
            self.value, self.written = self._gone
        self._looked, self._gone = False, None

    @property
    def _clock(self) -> int:
        return self.call.now if self.field.by_event else self.call.processing_time

    def __get__(self, owner: Any, kind: type) -> Any:
        field = self.field
        assert field.ttl is not None
        if field.immutable:
            return field.default if self._outlived(field.ttl) else self.value
        if not self._looked:
            if self._outlived(field.ttl):
                self._gone = None if self.written is None else (self.value, self.written)
                self.value = deepcopy(field.default) if field.plain else field.load(None)
                self.written = None
            self._seen, self._looked = self._image(), True
        return self.value

    def _image(self) -> Any:
        """A copy that differs from the value once a method has changed it."""
        if self.field.pickled:
            return self.field.store(self.value)
        return deepcopy(self.value) if self.field.nested else copy(self.value)

    def _outlived(self, ttl: int) -> bool:
        return self.written is None or self._clock >= self.written + ttl

    def __set__(self, owner: Any, value: Any) -> None:
        self.value, self.written = value, None if value is None else self._clock
