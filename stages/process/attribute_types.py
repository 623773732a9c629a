"""Types of declared fields and timers for type checkers: in a method, the attribute has the value of the current
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

ValueT = TypeVar("ValueT")


class Attribute(Generic[ValueT]):
    """A declaration as a class attribute. Type checkers see a `ValueT` when a method reads it from an object.

    At run time it is no descriptor: the object has the values as plain attributes (`CellState`), which are the fastest
    to read.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def __get__(self, owner: None, kind: Any = None) -> Self: ...

        @overload
        def __get__(self, owner: object, kind: Any = None) -> ValueT: ...

        def __get__(self, owner: object, kind: Any = None) -> Any: ...


class Assignable(Attribute[ValueT]):
    """A declaration whose value a method may also set, or delete."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __set__(self, owner: object, value: ValueT) -> None: ...

        def __delete__(self, owner: object) -> None: ...
