"""The options of runners, their validators, and the phases of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

import attrs

from beamlike.errors import nearest
from beamlike.logical.names import require_name
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.runtime.run.telemetry import Telemetry
from windowing.time import Duration, microseconds

AVAILABLE_NOW: Final = "available_now"
"""The trigger of a run that processes the available input and then ends."""


Trigger = Duration
"""The start of batches: `AVAILABLE_NOW`, or the shortest time between the starts of two batches."""


class RunOptions(Protocol):
    """The options of a run that both runners have."""

    @property
    def checkpoint(self) -> str | None: ...

    @property
    def trigger(self) -> Trigger: ...

    @property
    def drain(self) -> bool: ...

    @property
    def records(self) -> str | os.PathLike[str] | None: ...

    @property
    def on_batch(self) -> Callable[[BatchRecord], None] | None: ...

    @property
    def telemetry(self) -> tuple[Telemetry, ...]: ...

    @property
    def quiet(self) -> bool: ...

    @property
    def continue_as(self) -> str | None: ...


def is_trigger(owner: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Raises `ValueError` unless the value can be the trigger of a run."""
    if value == AVAILABLE_NOW:
        return
    try:
        interval = microseconds(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{type(owner).__name__}: trigger must be {AVAILABLE_NOW!r} or an interval such as '10 seconds', "
            f"not {value!r}{nearest(value, [AVAILABLE_NOW])} ({error})"
        ) from None
    if interval < 0:
        raise ValueError(f"{type(owner).__name__}: trigger must not be negative: {value!r}")


def seconds(interval: Trigger) -> float:
    """Converts an interval to seconds."""
    return microseconds(interval) / 1_000_000


def is_positive(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(
            f"{type(owner).__name__}: shards must be a whole number of at least 1, not {value!r}"
        )


def is_run_id(owner: object, attribute: attrs.Attribute[str | None], value: object) -> None:
    """Raises `PlanError` unless the value is one line of text, as for all names."""
    if value is not None:
        require_name(value, "run")


class Phase(IntEnum):
    """The phase of a run. A run only moves to later phases."""

    GOING = 0
    """Batches follow each other."""

    STOPPING = 1
    """The current batch is finished, and no other begins. The next run continues after it."""

    DRAINED = 2
    """All input was read, all windows are closed, and the run is over."""

    GIVEN_UP = 3
    """The current batch is abandoned, and the next run repeats it."""

    @property
    def ending(self) -> Ending:
        """The recorded ending of a run that stops in this phase without an error."""
        return "ended" if self in (Phase.GOING, Phase.DRAINED) else "stopped"
