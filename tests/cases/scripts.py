"""The script of a case of keyed state and timers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cases.case import Case, Unsupported
from tests.support.process_script import Script, Windows

_CASE = frozenset(
    {"element", "fire", "expire", "timers", "state", "ttl", "windows", "lateness", "order"}
)  # fmt: skip
_STEP = frozenset(
    {"elements", "watermark", "processing_time", "out", "late", "letters", "output_watermark", "live"}
)
_TIMERS = ("event", "event drop", "processing", "processing hold")


def script_of(case: Case) -> Script:
    """Returns the script of a case. Raises `Unsupported`."""
    case.require(_CASE, _STEP)
    given = dict(case.given)
    for kind in given.get("timers", {}).values():
        if kind not in _TIMERS:
            raise Unsupported(f"a timer is one of {', '.join(_TIMERS)}, not {kind!r}")
    given["windows"] = windows_of(given.get("windows", {"kind": "global"}))
    given["state"] = {name: _initial(value) for name, value in given.get("state", {}).items()}
    given["ttl"] = {name: _lifetime(text) for name, text in given.get("ttl", {}).items()}
    rows = [row for step in case.steps for row in step.get("elements", [])]
    return Script(**given, others=tuple(row["do"] for row in rows if "do" in row))


def windows_of(given: Mapping[str, Any]) -> Windows:
    """Returns the windows of a case. Raises `Unsupported` for windows of another kind."""
    if given["kind"] not in ("fixed", "sliding", "global"):
        raise Unsupported(f"windows are fixed, sliding or global, not {given['kind']!r}")
    return Windows(given.get("size"), given.get("period"))


def _initial(value: Any) -> Any:
    """Returns the initial value of a field, which may be given as a text."""
    return {"list": [], "map": {}, "set": set()}.get(value, value) if isinstance(value, str) else value


def _lifetime(text: str) -> tuple[str, float]:
    domain, duration = text.split()
    return domain, float(duration)
