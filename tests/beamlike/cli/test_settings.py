"""Parameters of a function, parsed from text by their annotations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

from beamlike.cli.settings import SettingError, bound
from windowing.time import Duration

if TYPE_CHECKING:
    from nowhere import Unknown


class Level(Enum):
    LOW = 1
    HIGH = 2


def scores(
    path: Path,
    days: int,
    /,
    share: float = 0.5,
    *,
    gap: timedelta = timedelta(minutes=1),
    quick: bool = False,
    name: str | None = None,
    mode: Literal["early", "late", 3] = "early",
    level: Level = Level.LOW,
    since: date | None = None,
    at: Annotated[datetime | None, "UTC"] = None,
    window: Duration = "1m",
    either: int | str = 0,
    unsaid=7,
    **others: int,
) -> None:
    """Accepts a parameter of every kind."""


def given(function: Callable[..., Any], *settings: str) -> dict[str, Any]:
    arguments = bound(function, settings).arguments
    return {**arguments, **arguments.pop("others", {})}


NEEDED = ("path=data", "days=3")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("share=1e-3", 0.001),
        ("gap=90s", timedelta(seconds=90)),
        ("gap=1.5", timedelta(seconds=1.5)),
        ("quick=Yes", True),
        ("quick=0", False),
        ("name=a=b", "a=b"),
        ("name=none", None),
        ("mode=late", "late"),
        ("mode=3", 3),
        ("level=HIGH", Level.HIGH),
        ("level=2", Level.HIGH),
        ("since=2026-01-31", date(2026, 1, 31)),
        ("at=2026-01-31T12:00", datetime(2026, 1, 31, 12)),
        ("window=90s", timedelta(seconds=90)),
        ("window=90", timedelta(seconds=90)),
        ("either=x", "x"),
        ("either=5", 5),
        ("unsaid=8", 8),
        ("more=9", 9),
    ],
)
def test_a_value_is_read_as_its_parameter_is_annotated(setting: str, value: object) -> None:
    key = setting.partition("=")[0]
    found = given(scores, *NEEDED, setting)
    assert (found["path"], found["days"]) == (Path("data"), 3)
    assert (found[key], type(found[key])) == (value, type(value))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("days=3",), "scores cannot be called: it needs path; give --set path=PATH"),
        ((), "scores cannot be called: it needs path, days; give --set path=PATH --set days=INT"),
        (("path=a", "days=many"), "days=many: expected int"),
        ((*NEEDED, "quick=maybe"), "quick=maybe: expected true or false"),
        ((*NEEDED, "gap=soon"), "gap=soon: expected duration"),
        ((*NEEDED, "mode=lat"), "mode=lat: expected one of early, late, 3; did you mean 'late'?"),
        ((*NEEDED, "level=HIGHER"), "level=HIGHER: expected one of LOW, HIGH; did you mean 'HIGH'?"),
        ((*NEEDED, "since=today"), "since=today: expected date or none"),
        ((*NEEDED, "share=1", "share=2"), "share is set twice"),
        ((*NEEDED, "more=x"), "more=x: expected int"),
        (("path",), "'path': write --set KEY=VALUE"),
    ],
)
def test_what_does_not_fit_is_told(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingError) as error:
        bound(scores, settings)
    assert str(error.value) == message


def test_a_parameter_that_is_not_there_is_told_with_the_nearest() -> None:
    def made(gap: str = "1m", user: str = "") -> None: ...

    with pytest.raises(
        SettingError, match=r"^made has no parameter 'gpa'; it has gap, user; did you mean 'gap'"
    ):
        bound(made, ["gpa=2m"])


def test_positional_parameters_come_in_their_places() -> None:
    arguments = bound(scores, ["days=3", "path=data"])
    assert arguments.args == (Path("data"), 3)


def test_annotations_that_only_type_checkers_know_are_texts() -> None:
    def made(what: Unknown, count: int = 1) -> None: ...

    assert given(made, "what=x", "count=2") == {"what": "x", "count": 2}
