"""State values without a column type, such as enums: they have one type in every batch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest

import beamlike as bl


class Page(Enum):
    HOME = "home"
    CART = "cart"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class UserId(str):
    pass


ID = UUID("12345678-1234-5678-1234-567812345678")


class Read(NamedTuple):
    user: str
    read: str


def kept(kind: Any, value: Any) -> bl.Process:
    class Kept(bl.Process):
        one = bl.Value(kind)
        all = bl.List(kind)
        some = bl.Set(kind)
        by = bl.Map(kind, kind)
        timed = bl.OrderedList(kind)
        many = bl.Value(list[kind])
        lasting = bl.Value(kind, ttl="1d")

        def element(self, row: dict[str, Any]) -> Iterator[Read]:
            timed = list(self.timed.items()) if hasattr(self.timed, "items") else self.timed.values
            yield Read(
                row["user"],
                repr([self.one, self.all, self.some, self.by, self.many, self.lasting, len(timed)]),
            )
            self.one = self.lasting = value
            self.all.append(value)
            self.some.add(value)
            self.by[value] = value
            self.many = [value]
            self.timed.add(datetime.fromtimestamp(row["at"], UTC), value)

    return Kept()


def run(process: bl.Process, rows_per_batch: int) -> list[str]:
    given = [{"user": "ada", "at": second} for second in range(3)]
    source, out = bl.Rows(given, rows_per_batch=rows_per_batch), bl.Memory()
    p = bl.Pipeline("p")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.group_by("user").process(process, keep_forever=True).write("out", out)
    p.run()
    return out.frame()["read"].to_list()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Page, Page.CART),
        (Level, Level.HIGH),
        (UUID, ID),
        (UserId, UserId("x")),
        (Literal[Page.HOME], Page.HOME),
    ],
)
def test_a_value_has_one_type_in_every_batch(kind: Any, value: Any) -> None:
    found = run(kept(kind, value), 1)
    assert found == run(kept(kind, value), 3)
    assert found[1].startswith(f"[{value!r}, [{value!r}], {{{value!r}}}, ")


@pytest.mark.parametrize("kind", [set[str], frozenset[Page], tuple[int, ...]])
def test_a_collection_has_one_type_in_every_batch(kind: Any) -> None:
    value = {set[str]: {"a"}, frozenset[Page]: frozenset([Page.CART]), tuple[int, ...]: (1, 2)}[kind]

    class Kept(bl.Process):
        one = bl.Value(kind)

        def element(self, row: dict[str, Any]) -> Iterator[Read]:
            yield Read(row["user"], repr(self.one))
            self.one = value

    assert run(Kept(), 1) == run(Kept(), 3) == ["None", repr(value), repr(value)]


def test_text_in_place_of_a_member_is_a_dead_letter() -> None:
    class Kept(bl.Process):
        page = bl.Value(Page, default=Page.HOME)

        def element(self, row: dict[str, Any]) -> Iterator[Read]:
            yield Read(row["user"], repr(self.page))
            self.page = "cart" if row["at"] == 1 else Page.CART

    assert run(Kept(), 1) == run(Kept(), 3) == ["<Page.HOME: 'home'>", "<Page.CART: 'cart'>"]
