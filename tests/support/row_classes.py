"""Row classes of every kind with the same fields, and functions of them, for tests on all runners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
from pydantic import BaseModel, Field

import beamlike as bl


class Kind(Enum):
    PAGE = "page"
    VIDEO = "video"


@dataclass
class Place:
    country: str
    zips: list[int] = field(default_factory=list)


@dataclass
class Click:
    user: str
    points: int
    at: datetime
    rate: float | None
    kind: Kind
    way: Literal["web", "app"]
    tags: set[str]
    place: Place | None = None
    times: int = 1


@attrs.frozen
class AttrsClick:
    user: str
    points: int
    at: datetime
    rate: float | None
    kind: Kind
    way: Literal["web", "app"]
    tags: set[str]
    place: Place | None = None
    times: int = attrs.field(default=1, kw_only=True)


class TupleClick(NamedTuple):
    user: str
    points: int
    at: datetime
    rate: float | None
    kind: Kind
    way: Literal["web", "app"]
    tags: set[str]
    place: Place | None = None
    times: int = 1


class DictClick(TypedDict):
    user: str
    points: int
    at: datetime
    rate: float | None
    kind: Kind
    way: Literal["web", "app"]
    tags: set[str]
    place: Place | None
    times: NotRequired[int]


class ModelClick(BaseModel):
    user: str
    points: int
    at: datetime
    rate: float | None
    kind: Kind
    way: Literal["web", "app"]
    tags: set[str]
    place: Place | None = None
    times: int = 1


CLICKS: dict[str, Any] = {
    "dataclass": Click,
    "attrs": AttrsClick,
    "named tuple": TupleClick,
    "typed dict": DictClick,
    "pydantic": ModelClick,
}


class Flat(NamedTuple):
    """Fields whose values need no conversion."""

    user: str
    points: int
    note: str | None = None


class Score(BaseModel):
    user: str
    points: Annotated[int, Field(ge=0)]
    last: Flat | None = None


def scored(row: Flat) -> Score:
    return Score(user=row.user, points=row.points, last=row)


class Latest(bl.Process):
    """Emits the running total of a user's points, with the row before."""

    before = bl.Value(Flat)
    all = bl.List(Score)
    quiet = bl.EventTimer()

    def element(self, row: Score) -> Iterator[Score]:
        self.all.append(row)
        yield Score(user=row.user, points=sum(one.points for one in self.all), last=self.before)
        self.before = row.last
        self.quiet.after("10m")

    def on_quiet(self) -> Iterator[Score | bl.TimestampedValue]:
        assert self.before is not None
        yield Score(user=self.before.user, points=len(self.all), last=self.before)
