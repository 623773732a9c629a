"""Transcripts: TOML files that list, step by step, the input of a windowed grouping and its expected panes.

This module reads a file to immutable declarations, and refuses any unknown entry. `play` runs them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import attrs

from beamlike.errors import listed, nearest
from beamlike.spec.constructors import BadConstructor, Refused, construct, is_number, scaled
from beamlike.system.texts import quoted
from windowing.panes import ALWAYS, IF_NON_EMPTY, Accumulation
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME, Microseconds, format_duration, microseconds
from windowing.timestamp_combiners import TimestampCombiner
from windowing.triggers.base import Trigger
from windowing.windows import WindowFn

UNITS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000}
RUNNERS: Final = ("stage", "local", "spark", "spark_batch")
"""The runners for which a transcript may declare that they do not support it."""

AGGREGATES: Final = ("collect", "count", "max", "mean", "min", "sum")
GLOBAL: Final = (MIN_TIME, GLOBAL_WINDOW_END)

_TOP = ("name", "unit", "windowing", "aggregate", "step", "error", "unsupported")
_ACTIONS = ("elements", "watermark", "processing_time")
_STEP = (*_ACTIONS, "panes", "watermarks", "dropped")
_ELEMENT = ("key", "value", "at")
PANE: Final = (
    "key", "window", "values", "value", "timestamp", "timing", "index", "nonspeculative_index", "first", "last",
    "retracted",
)  # fmt: skip
_PLAIN: Final[dict[str, type[Any]]] = {
    "key": str, "timing": str, "index": int, "nonspeculative_index": int, "first": bool, "last": bool,
    "retracted": bool,
}  # fmt: skip
_CHOICES: Final[dict[str, type[Any]]] = {
    "accumulation": str, "timestamp_combiner": str, "on_time": str, "closing": str, "allow_data_loss": bool,
}  # fmt: skip
_MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "accumulation": tuple(mode.value for mode in Accumulation),
    "timestamp_combiner": tuple(combiner.value for combiner in TimestampCombiner),
    "on_time": (ALWAYS, IF_NON_EMPTY),
    "closing": (ALWAYS, IF_NON_EMPTY),
}
"""The allowed values of each setting."""

_TIMINGS = ("early", "on_time", "late")
_REASONS = ("late", "closed", "no window")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")

Pane = Mapping[str, Any]
"""Attributes of a pane. Times are in microseconds, `window` is (start, end), and `values` is sorted."""


class TranscriptError(ValueError):
    """Raised for an invalid transcript. The message names the file, the step and what was expected."""


@attrs.frozen
class Element:
    """An arriving element. `at` is its event time in microseconds."""

    key: str
    value: float
    at: int


@attrs.frozen
class Step:
    """A step: a bundle of elements or an advance of a clock, with its expected outcome. Times are in microseconds."""

    name: str
    elements: tuple[Element, ...] = ()
    watermark: int | None = None
    processing_time: int | None = None
    panes: tuple[Pane, ...] = ()
    watermarks: Mapping[str, int] = attrs.field(factory=dict)
    dropped: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Transcript:
    """A transcript: the windowing of one grouping, and either steps or an expected error.

    `refusal` is the error message if windows or trigger cannot even be constructed. `unsupported` has a reason for each
    runner that does not support the transcript. `unit` is the unit of times in the file, in microseconds.
    """

    name: str
    path: str
    unit: int
    choices: Mapping[str, Any]
    aggregate: str
    steps: tuple[Step, ...]
    error: str | None
    refusal: str | None
    unsupported: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """True if all values are integers."""
        return all(isinstance(element.value, int) for step in self.steps for element in step.elements)


def load(path: str | Path) -> Transcript:
    """Reads a transcript from a file. Raises `TranscriptError` if the file cannot be read or is invalid."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise TranscriptError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TranscriptError(f"{path}: a transcript is UTF-8, unlike byte {error.start}") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Transcript:
    """Parses the text of a transcript. Raises `TranscriptError`, which names `path`, if the text is invalid."""
    try:
        return _Reader(path, 1).transcript(tomllib.loads(text))
    except TranscriptError:
        raise
    except (RecursionError, ValueError) as error:  # also for numbers with too many digits
        raise TranscriptError(f"{path}: {error}") from None


@attrs.frozen
class _Reader:
    """The parser of a file's tables. `where` is the place that errors name, and `unit` the unit of times (us)."""

    where: str
    unit: int

    def fail(self, message: str) -> TranscriptError:
        return TranscriptError(f"{self.where}: {message}")

    def within(self, place: str) -> _Reader:
        return attrs.evolve(self, where=f"{self.where}: {place}")

    def table(self, value: Any, known: Iterable[str], what: str) -> dict[str, Any]:
        """Returns the table `value`. Raises `TranscriptError` if it is no table, or has a key that is not `known`."""
        if not isinstance(value, dict):
            raise self.fail(f"{what} is a table, not {value!r}")
        known = tuple(known)
        for key in value:
            if key not in known:
                raise self.fail(f"{what} has no {key!r}; it may have {listed(known)}{nearest(key, known)}")
        return value

    def typed(self, value: Any, kind: type[Any], what: str) -> Any:
        if type(value) is not kind:
            expected = {str: "text", bool: "true or false", int: "a whole number"}[kind]
            raise self.fail(f"{what} is {expected}, not {value!r}")
        return value

    def one_of(self, value: Any, allowed: Iterable[str], what: str) -> str:
        allowed = tuple(allowed)
        if value not in allowed:
            raise self.fail(
                f"{what} may be {listed(map(repr, allowed))}, not {value!r}{nearest(value, allowed)}"
            )
        return str(value)

    def time(self, value: Any, what: str) -> int:
        """Reads a time in microseconds: a number in the file's unit, or a date-time with an offset."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            return (value - _EPOCH) // timedelta(microseconds=1)
        if is_number(value):
            return int(self.scaled(value, what))
        raise self.fail(f"{what} is a number or a date-time with an offset, not {value!r}")

    def scaled(self, value: float, what: str) -> Microseconds:
        """Converts a number in the file's unit to microseconds."""
        try:
            return scaled(value, self.unit)
        except ValueError as error:
            raise self.fail(f"{what}: {error}") from None

    def transcript(self, top: dict[str, Any]) -> Transcript:
        """Converts the top-level table of a file to a transcript."""
        self.table(top, _TOP, "a transcript")
        for key in ("name", "windowing"):
            if key not in top:
                raise self.fail(f"{key!r} is missing")
        unit = UNITS[self.one_of(top.get("unit", "s"), UNITS, "unit")]
        reader = attrs.evolve(self, unit=unit)
        error = top.get("error")
        if error is not None:
            self.typed(error, str, "error")
            if not error.strip():
                raise self.fail("error is a part of the message that is expected, not ''")
        if (error is None) == ("step" not in top):
            raise self.fail("a transcript has either steps ([[step]]) or an error")
        if error is None and top["step"] == []:
            raise self.fail("a transcript has steps ([[step]]), not step = []")
        choices, refusal = reader.within("[windowing]").windowing(top["windowing"])
        if error is None:
            if refusal is not None:
                raise self.fail(f"[windowing]: {refusal}")
            reader.within("[windowing]").check(choices)
        aggregate = self.one_of(top.get("aggregate", "collect"), AGGREGATES, "aggregate")
        unsupported = self.table(top.get("unsupported", {}), RUNNERS, "unsupported")
        return Transcript(
            name=self.typed(top["name"], str, "name"),
            path=self.where,
            unit=unit,
            choices=choices,
            aggregate=aggregate,
            steps=reader.steps(top.get("step", []), aggregate),
            error=error,
            refusal=refusal,
            unsupported={key: self.typed(why, str, f"unsupported.{key}") for key, why in unsupported.items()},
        )

    def windowing(self, given: Any) -> tuple[dict[str, Any], str | None]:
        """Returns the windowing's settings, and the reason why windows or trigger cannot be constructed, or None."""
        self.table(given, ("windows", "trigger", "allowed_lateness", *_CHOICES), "it")
        if "windows" not in given:
            raise self.fail("'windows' is missing")
        choices = {key: self.typed(given[key], kind, key) for key, kind in _CHOICES.items() if key in given}
        if "allowed_lateness" in given:
            lateness = given["allowed_lateness"]
            choices["allowed_lateness"] = (
                self.scaled(lateness, "allowed_lateness") if is_number(lateness) else lateness
            )
        try:
            for key, kind in (("windows", WindowFn), ("trigger", Trigger)):
                if key in given:
                    choices[key] = construct(self.typed(given[key], str, key), kind, self.unit)
        except BadConstructor as error:
            raise self.fail(f"{key}: {error}") from None
        except Refused as error:
            return choices, f"{key}: {error}"
        return choices, None

    def check(self, choices: Mapping[str, Any]) -> None:
        """Raises `TranscriptError` if a single setting is invalid. Not called if the transcript expects an error."""
        for key, allowed in _MEMBERS.items():
            if key in choices:
                self.one_of(choices[key], allowed, key)
        try:
            lateness = microseconds(choices.get("allowed_lateness", 0))
        except (OverflowError, TypeError, ValueError) as error:
            raise self.fail(f"allowed_lateness: {error}") from None
        if not 0 <= lateness < GLOBAL_WINDOW_END:
            raise self.fail(f"allowed_lateness must be inside of time, not {format_duration(lateness)}")

    def steps(self, given: Any, aggregate: str) -> tuple[Step, ...]:
        """Reads the steps. Raises `TranscriptError` if a clock does not advance."""
        if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
            raise self.fail("steps are written as [[step]]")
        steps: list[Step] = []
        for number, item in enumerate(given, start=1):
            action = [key for key in _ACTIONS if key in item]
            shown = f" ({action[0]} = {_toml(item[action[0]])})" if len(action) == 1 else ""
            reader = self.within(f"step {number}{shown}")
            reader.table(item, _STEP, "a step")
            if len(action) != 1:
                what = f"not both {' and '.join(action)}" if action else "it has none"
                raise reader.fail(f"a step has one of {', '.join(_ACTIONS)}; {what}")
            step = reader.step(item, f"step {number}{shown}", aggregate)
            reader.forward(step, steps)
            steps.append(step)
        return tuple(steps)

    def step(self, item: dict[str, Any], name: str, aggregate: str) -> Step:
        """Converts a table to the step `name`."""
        watermark, now = item.get("watermark"), item.get("processing_time")
        if watermark is not None:
            watermark = MAX_TIME if watermark == "end" else self.time(watermark, 'a watermark (or "end")')
        pane = self.pane_of(aggregate)
        return Step(
            name=name,
            elements=self.listed(item, "elements", self.element),
            watermark=watermark,
            processing_time=None if now is None else self.time(now, "processing_time"),
            panes=self.listed(item, "panes", pane),
            watermarks=self.watermarks(item.get("watermarks", {})),
            dropped={
                key: self.typed(count, int, f"dropped.{key}")
                for key, count in self.table(item.get("dropped", {}), _REASONS, "dropped").items()
            },
        )

    def forward(self, step: Step, before: list[Step]) -> None:
        """Raises `TranscriptError` unless the clocks of a step advance."""
        for clock, start in (("watermark", MIN_TIME), ("processing_time", 0)):
            now = getattr(step, clock)
            stood = max(
                (at for earlier in before if (at := getattr(earlier, clock)) is not None), default=start
            )
            if now is not None and now <= stood:
                raise self.fail(f"{clock} goes forward only")
        if before and before[-1].watermark == MAX_TIME:
            raise self.fail("nothing can follow the end of input")

    def listed(self, item: dict[str, Any], key: str, read: Callable[[Any], Any]) -> tuple[Any, ...]:
        values = item.get(key, [])
        if not isinstance(values, list):
            raise self.fail(f"{key} is a list, not {values!r}")
        return tuple(read(value) for value in values)

    def element(self, given: Any) -> Element:
        """Reads an element: a table, or a number that is both value and event time."""
        if is_number(given):
            return Element("k", given, self.time(given, "an element"))
        table = self.table(given, _ELEMENT, "an element")
        for key in ("value", "at"):
            if key not in table:
                raise self.fail(f"the element {_toml(table)} has no {key!r}")
        if not is_number(table["value"]):
            raise self.fail(f"the value of an element is a number, not {table['value']!r}")
        key = self.typed(table.get("key", "k"), str, "the key of an element")
        return Element(key, table["value"], self.time(table["at"], "at"))

    def watermarks(self, given: Any) -> dict[str, int]:
        """Reads the expected watermarks after a step. "start" and "end" are the limits of time."""
        limits = {"start": MIN_TIME, "end": MAX_TIME}
        return {
            key: limits[value] if value in ("start", "end") else self.time(value, f"watermarks.{key}")
            for key, value in self.table(given, ("input", "output"), "watermarks").items()
        }

    def pane_of(self, aggregate: str) -> Callable[[Any], Pane]:
        """Returns a function that reads panes. They have `values` if the aggregate is `collect`, otherwise `value`."""
        other = "value" if aggregate == "collect" else "values"
        known = tuple(name for name in PANE if name != other)

        def pane(given: Any) -> Pane:
            table = self.table(given, known, "a pane")
            if not table:
                raise self.fail(f"a pane names some of {listed(known)}")
            return {name: self.attribute(name, value) for name, value in table.items()}

        return pane

    def attribute(self, name: str, value: Any) -> Any:
        """Returns an attribute of a pane in the form in which it is compared."""
        if name == "window":
            return self.window(value)
        if name == "timestamp":
            return self.time(value, name)
        if name == "timing":
            return self.one_of(value, _TIMINGS, name)
        if name in _PLAIN:
            return self.typed(value, _PLAIN[name], name)
        if name == "values" and not (isinstance(value, list) and all(map(is_number, value))):
            raise self.fail(f"values is a list of numbers, not {value!r}")
        return sorted(value) if name == "values" else value

    def window(self, value: Any) -> tuple[int, int]:
        """Reads a window: `[start, end]`, or "global"."""
        if value == "global":
            return GLOBAL
        if not isinstance(value, list) or len(value) != 2:
            raise self.fail(f'window is [start, end] or "global", not {value!r}')
        start, end = (self.time(bound, "a bound of a window") for bound in value)
        return start, end


def _toml(value: Any) -> str:
    """Formats a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        keys = [key if key.isidentifier() and key.isascii() else quoted(key) for key in value]
        return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in zip(keys, value.values(), strict=True))} }}"
    return str(value)


def pane_text(pane: Pane, unit: int) -> str:
    """Formats a pane as TOML."""
    shown = dict(pane)
    if "window" in pane:
        bounds = [time_text(bound, unit) for bound in pane["window"]]
        shown["window"] = "global" if pane["window"] == GLOBAL else bounds
    if "timestamp" in pane:
        shown["timestamp"] = time_text(pane["timestamp"], unit)
    return _toml(shown)


def time_text(time: int, unit: int) -> float | str:
    """Converts a time to the unit of the file. The limits of time are "start" and "end"."""
    if time <= MIN_TIME or time >= MAX_TIME:
        return "start" if time <= MIN_TIME else "end"
    return time // unit if time % unit == 0 else time / unit
