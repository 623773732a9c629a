"""The status of a run for monitoring: a few lines and an exit code."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from beamlike.observe.completeness.promises import promise_lines
from beamlike.observe.waiting.explain import run_state
from beamlike.observe.words import current_texts, failure_texts, length
from beamlike.records.history import History
from beamlike.records.present import Present

_PAUSE = 2_000_000  # us; a run without a batch for so long has read all input that there is


@attrs.frozen
class Status:
    """The status of a run. `lags` has the lag (us) of each source and stage that has a finite watermark."""

    history: History
    present: Present
    lags: dict[str, int]

    @classmethod
    def of(cls, history: History, now: int | None = None) -> Status:
        """Returns the status at time `now` (us), by default this machine's. A finished run has its status after the
        last batch.
        """
        present = history.present(time.time_ns() // 1000 if now is None else now)
        return cls(history, present, dict(_lags(present)))

    @property
    def age(self) -> int | None:
        """The time (us) since the last batch began; None before the first batch."""
        batch = self.present.batch
        return None if batch is None else max(0, self.present.time - batch.processing_time)

    @property
    def waits(self) -> bool:
        """True if the run has read all input that its sources have, and waits for more."""
        batch, present = self.present.batch, self.present
        if self.history.closed is not None or not self.history.alive or present.in_hand is not None:
            return False
        return batch is None or present.time - (batch.finished or batch.processing_time) > _PAUSE

    def lines(self) -> Iterator[str]:
        """Yields why the run failed, its state, its lags, greatest first, and how its promises were kept."""
        yield from failure_texts(self.history, self.present)
        if self.present.batch is None or self.age is None:
            done = "a batch" if self.present.in_hand is None else "a complete batch"
            yield f"{run_state(self.history)}, without {done}"
            yield from current_texts(self.history, self.present)
            return
        over = self.history.closed is not None
        when = "" if over else f", which began {length(self.age)} ago"
        waits = ", and it waits for input" if self.waits else ""
        yield f"{run_state(self.history)}; the last batch is {self.present.batch.batch}{when}{waits}"
        yield from current_texts(self.history, self.present)
        for name, lag in sorted(self.lags.items(), key=lambda item: -item[1]):
            yield f"{name}: {length(lag)} behind"
        yield from promise_lines(self.history)

    def troubles(self, max_lag: int | None = None, max_age: int | None = None) -> Iterator[str]:
        """Yields the problems: the run failed or was killed, its batch is older than `max_age` (us), or a lag exceeds
        `max_lag` (us).

        A run that ended normally has none, and one that waits for input is neither stuck nor behind. What is None is
        not checked.
        """
        if self.history.closed == "failed" or (self.history.closed is None and self.history.alive is False):
            yield from [*failure_texts(self.history, self.present), run_state(self.history)][:1]
            return
        if self.history.closed is not None or self.waits:
            return
        greatest = min((one for one in (max_age, max_lag) if one is not None), default=None)
        if greatest is not None:
            yield from self._old(greatest)
        for name, lag in self.lags.items():
            if max_lag is not None and lag > max_lag:
                yield f"{name} is {length(lag)} behind, more than {length(max_lag)}"

    def _old(self, greatest: int) -> Iterator[str]:
        """Yields that the current batch, or the last one if none is known, began longer than `greatest` (us) ago."""
        age = self.age if self.present.in_hand is None else self.present.in_hand_for
        if age is not None and age > greatest:
            which = "last" if self.present.in_hand is None else "current"
            yield f"the {which} batch began {length(age)} ago, more than {length(greatest)}"


def _lags(present: Present) -> Iterator[tuple[str, int]]:
    batch = present.batch
    if batch is None:
        return
    for name, source in batch.sources.items():
        lag = present.lag(source.watermark)
        if lag is not None and not source.idle:
            yield f"source {name}", lag
    for name, stage in batch.stages.items():
        lag = present.lag(stage.output)
        if lag is not None:
            yield f"stage {name}", lag
