"""Converters and validators for the fields of watermark strategies. Their errors name the class and the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from windowing.columns import RESERVED_PREFIX
from windowing.time import Duration, Microseconds, format_duration, microseconds


@attrs.frozen
class SourceFile:
    """The value of `per_split` that makes each file of a source a split."""

    def __str__(self) -> str:
        return "source_file()"


def length(value: Duration | None) -> Microseconds | None:
    """Converts a duration to microseconds. Returns anything else unchanged, for the validator to report."""
    try:
        return None if value is None else microseconds(value)
    except (TypeError, ValueError):
        return value  # type: ignore[return-value]


def longer_than_nothing(owner: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Validates that a duration is positive, or None."""
    what = f"{type(owner).__name__}: {attribute.name}"
    try:
        given = None if value is None else microseconds(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
    if given is not None and given <= 0:
        raise ValueError(f"{what} must be longer than 0s, not {format_duration(given)}")


def shown(value: int | None) -> str:
    """Formats a duration (us) as users write it."""
    return "None" if value is None else format_duration(value)


def column(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates the name of a column, or None if that is the default."""
    what = f"{type(owner).__name__}: {attribute.alias}"
    if value is None and attribute.default is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{what} must be the name of a column, not {value!r}")
    if not value or value.startswith(RESERVED_PREFIX):
        raise ValueError(f"{what} must be the name of a column of the source's, not {value!r}")


def are_whole_numbers(value: object) -> bool:
    """True for a list or tuple of integers."""
    return isinstance(value, list | tuple) and all(type(number) is int for number in value)


def in_order(value: Iterable[int]) -> tuple[int, ...]:
    """Sorts integers. Returns anything else unchanged, for the validator to report."""
    return tuple(sorted(value)) if are_whole_numbers(value) else value  # type: ignore[return-value]


def percentiles(owner: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Validates integers from 1 to 99, each once."""
    what = f"{type(owner).__name__}: {attribute.name} must be whole numbers from 1 to 99 such as (33, 66)"
    if not are_whole_numbers(value):
        raise TypeError(f"{what}, not {value!r}")
    for number in value:
        if not 1 <= number <= 99:
            raise ValueError(f"{what}, not {number}; the 100th is the watermark itself")
        if value.count(number) > 1:
            raise ValueError(f"{what}, each once; {number} is given twice")


def not_negative(owner: object, attribute: attrs.Attribute[Any], value: int) -> None:
    """Validates that a duration (us) is not negative."""
    if value < 0:
        raise ValueError(
            f"{type(owner).__name__}: {attribute.name} must not be negative, not {format_duration(value)}"
        )


def by_the_clock(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates that an option without a meaning for processing-time strategies is None."""
    if value is not None:
        reasons = {
            "per_split": "processing time is the same for every split",
            "idle_after": "its watermark moves when nothing comes, too",
        }
        given = f"{type(owner).__name__}: {attribute.name}={value!r}"
        raise ValueError(f"{given} has no meaning here: {reasons[attribute.name]}")


def split(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates the name of a column or `source_file()`, or None if that is the default."""
    if not isinstance(value, SourceFile):
        column(owner, attribute, value)


def names(value: Any) -> Any:
    """Converts the names of splits to text. Returns a count unchanged."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(map(str, value))
    return value


def expected(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates the names of splits, or their number, or None."""
    what = f"{type(owner).__name__}: expected must be the names of the splits, or how many there are"
    if isinstance(value, bool) or not isinstance(value, tuple | int | None):
        raise TypeError(f"{what}, not {value!r}")
    if value == () or (isinstance(value, int) and value < 1):
        raise ValueError(f"{what}, at least one, not {value!r}; leave it out if they are not known")
    if isinstance(value, tuple):
        twice = next((name for name in value if value.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{what}, each once; {twice!r} is given twice")


def share(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates a number above 0 and at most 1."""
    what = f"{type(owner).__name__}: {attribute.name} must be more than 0 and at most 1, such as 0.99"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what}, not {value!r}")
    if not 0 < value <= 1:
        raise ValueError(f"{what}, not {value!r}")
