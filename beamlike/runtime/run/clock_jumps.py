"""Logs jumps of the machine's clock, far ahead or behind processing time, with their effect on the pipeline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import attrs

from beamlike.plan.manifest import needs_processing_time
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord
from windowing.time import DAY, format_duration, format_time

_LOG = logging.getLogger("beamlike")

_FAR: Final = DAY
_LONG_AGO: Final = 90 * DAY
_BEHIND: Final = 60_000_000

_DUE: Final = "timers, triggers, ProcessingTimeLag and idle sources became due by that clock"
_UNUSED: Final = "nothing in this pipeline waits for processing time, but max_future counts from it"


@attrs.define
class ClockJumps:
    """A check of batches' processing times against each other, and against the time that really passed between them.

    `clock` returns the time of this machine (us). `steady` returns seconds of a clock that is never adjusted. `last` is
    the processing time (us) of the newest batch, if known; it may be from an earlier run on the checkpoint.
    """

    plan: Plan
    clock: Callable[[], int]
    last: int | None = None
    steady: Callable[[], float] = time.monotonic
    _since: float | None = None
    _told: bool = False
    _stepped: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stepped = steps_of(self.plan) is not None

    def take(self, record: BatchRecord) -> None:
        """Compares the processing time of a batch with the expected time, and logs a warning if they differ much."""
        if self._stepped:
            return  # a test stream sets processing time itself
        now, before, steady = record.processing_time, self.last, self.steady()
        passed = None if self._since is None else round((steady - self._since) * 1_000_000)
        self.last, self._since = now, steady
        if before is not None:
            self._compare(record.batch, now - before, passed)
        if (ahead := now - self.clock()) > _BEHIND and not self._told:
            self._told = True
            self._log_standing(now, ahead)

    def _compare(self, batch: int, by: int, passed: int | None) -> None:
        """Logs an advance of processing time that is much longer than `passed`, which is unknown between two runs."""
        if by < (_LONG_AGO if passed is None else passed + _FAR):
            return
        real = "since the run before" if passed is None else f"while {_shown(passed)} passed"
        _LOG.warning(
            "batch %d: the clock of this machine jumped ahead by %s, to %s, %s; %s. Processing time never goes back: "
            "if the clock was wrong and is set right, it does not move until the clock has caught up.",
            *(
                batch,
                _shown(by),
                format_time(self.last or 0),
                real,
                self._effect,
            ),
        )

    def _log_standing(self, now: int, ahead: int) -> None:
        _LOG.warning(
            "processing time stays at %s, which is %s ahead of this machine's clock: that clock was ahead when an "
            "earlier batch began, and processing time never goes back. Until the clock has caught up, nothing that "
            "waits for processing time becomes due. An earlier savepoint begins with its own processing time.",
            *(format_time(now), _shown(ahead)),
        )

    @property
    def _effect(self) -> str:
        return _DUE if needs_processing_time(self.plan) else _UNUSED


def _shown(length: int) -> str:
    """Formats a duration in whole seconds."""
    return format_duration(length // 1_000_000 * 1_000_000)
