"""Descriptors for state fields of a `Process`: fields that are loaded at their first read, and fields that expire."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

from stages.process.calls import Call
from stages.process.fields import FieldColumn


class LazyField:
    """A descriptor of a field that is loaded when a method first reads it, and is a plain attribute from then on."""

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name, self.load = name, load

    def __get__(self, owner: Any, kind: type) -> Any:
        value = vars(owner)[self.name] = self.load()
        return value


class FailedSide:
    """A descriptor of a side input whose value could not be made: a method that reads it fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __get__(self, owner: Any, kind: type) -> Any:
        raise ValueError(str(self.error))


class ExpiringField:
    """A descriptor of a field with a time to live. It holds the current key's value and the time of its last write.

    A method may change a container, such as a list, without an assignment. So a copy is made at the first read of a
    call, and compared after the call.
    """

    def __init__(self, field: FieldColumn, call: Call) -> None:
        self.field, self.call = field, call
        self.value: Any = None
        self.written: int | None = None
        """The time of the last write (us); None if the field has no value."""
        self._copy: Any = None
        """The copy of the value that was made at its first read in this call."""
        self._was_read = False
        """True if the current call has read a container."""
        self._expired: tuple[Any, int] | None = None
        """The value, and the time of its last write, if it had expired when the current call read it."""

    def load(self, raw: Any, written: int | None) -> None:
        """Loads the field of the next cell: its stored value, and the time of its last write (us)."""
        self.value, self.written = raw if self.field.plain else self.field.load(raw), written
        self._was_read, self._expired = False, None

    def saved(self) -> tuple[Any, int | None]:
        """Returns a copy of the value and the time of its last write, for `restore`."""
        return deepcopy(self.value), self.written

    def restore(self, saved: tuple[Any, int | None]) -> None:
        """Resets the field to a copy that `saved` returned."""
        self.value, self.written = saved
        self._was_read, self._expired = False, None

    def stored(self) -> Any:
        """Returns the value as the state column stores it; None if the field has no value."""
        return None if self.written is None else self.field.store(self.value)

    def after_call(self) -> None:
        """Completes a call of a user's method. If the method has changed a container, the field counts as written."""
        if self._was_read and self._image() != self._copy:
            self.written = self._clock
        # An expired value that was not replaced is restored: a row with an earlier time may still read it.
        elif self._expired is not None and self.written is None:
            self.value, self.written = self._expired
        self._was_read, self._expired = False, None

    @property
    def _clock(self) -> int:
        return self.call.now if self.field.by_event else self.call.processing_time

    def __get__(self, owner: Any, kind: type) -> Any:
        field = self.field
        assert field.ttl is not None
        if field.immutable:
            return field.default if self._has_expired(field.ttl) else self.value
        if not self._was_read:
            if self._has_expired(field.ttl):
                self._expired = None if self.written is None else (self.value, self.written)
                self.value = deepcopy(field.default) if field.plain else field.load(None)
                self.written = None
            self._copy, self._was_read = self._image(), True
        return self.value

    def _image(self) -> Any:
        """Returns a copy of the value, to compare with it after the call and detect a change."""
        if self.field.pickled:
            return self.field.store(self.value)
        return deepcopy(self.value) if self.field.nested else copy(self.value)

    def _has_expired(self, ttl: int) -> bool:
        return self.written is None or self._clock >= self.written + ttl

    def __set__(self, owner: Any, value: Any) -> None:
        self.value, self.written = value, None if value is None else self._clock
