"""Python's operators for frames and lists, which a collection has not: each answers with the step to use."""

from __future__ import annotations

from typing import Any, NoReturn

from beamlike.errors import WrongType


class UnlikeFrames:
    """A base class whose objects explain `len(c)`, `c["user"]`, loops, `if c:`, `c + other` and `c | step`."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        self._refuse(
            "has no truth value: its rows are known only in a run; compare with 'is None', or write collect()"
        )

    def __len__(self) -> NoReturn:
        self._refuse(
            "has no length before a run: write aggregate(n=bl.count()), or len(collection.collect())"
        )

    def __iter__(self) -> NoReturn:
        self._refuse(
            "cannot be iterated: write map(function) for each row, or collect().iter_rows(named=True)"
        )

    def __contains__(self, value: object) -> NoReturn:
        self._refuse(
            f"cannot be searched for {value!r}: write filter(bl.col('x') == value), or look in its .schema"
        )

    def __getitem__(self, key: object) -> NoReturn:
        write = (
            f"select({key!r}) for a column, bl.col({key!r}) in an expression"
            if isinstance(key, str)
            else "filter(...)"
        )
        self._refuse(f"has no items such as [{key!r}]: write {write}, or head(n) for some rows")

    def __setitem__(self, key: object, value: object) -> NoReturn:
        self._refuse(
            f"cannot be changed: write with_columns({key}=expression), which returns a new collection"
        )

    def __add__(self, other: object) -> NoReturn:
        self._refuse("cannot be added: write bl.flatten(one, other) for the rows of both")

    def __or__(self, other: object) -> NoReturn:
        self._refuse(
            "is not piped by |: call a method, such as map(function, schema=...) or aggregate(n=bl.count())"
        )

    def __gt__(self, other: object) -> NoReturn:
        self._refuse("cannot be compared or computed with: write bl.col('x') for the values of a column")

    __lt__ = __ge__ = __le__ = __sub__ = __mul__ = __truediv__ = __gt__

    def _refuse(self, reason: str) -> NoReturn:
        given: Any = self
        raise WrongType(f"{given!r} {reason}", step=given.node.name)
