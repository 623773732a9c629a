"""Looks for new input periodically while a query with an interval runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import attrs

from beamlike.errors import RunError
from beamlike.runtime.run.options import Trigger, seconds
from beamlike.spark.query.listing import Listings

_SHORTEST: Final = 0.1  # seconds between two polls


@attrs.define(eq=False)
class FilePoller:
    """A thread that looks for new input twice per batch interval while the query is `alive`.

    If that fails, `error` has the reason, and `give_up` is called. When `ended` is true, no input can follow, and
    `finish` is called.
    """

    listings: Listings
    interval: Trigger
    alive: Callable[[], bool]
    give_up: Callable[[], None]
    ended: Callable[[], bool]
    finish: Callable[[], None]
    error: Exception | None = None
    _over: threading.Event = attrs.field(factory=threading.Event, init=False)

    def start(self) -> None:
        """Starts polling, if there are sources to poll."""
        if self.listings.sources:
            threading.Thread(target=self._watch, name="looks for new files", daemon=True).start()

    def stop(self) -> None:
        """Stops polling."""
        self._over.set()

    def check(self) -> None:
        """Raises `RunError` if polling has failed."""
        if self.error is not None:
            raise RunError("the run ended, since it could not look for new files") from self.error

    def _watch(self) -> None:
        pause = max(_SHORTEST, seconds(self.interval) / 2)
        while not self._over.wait(pause) and self.alive():
            try:
                self.listings.look()
                if self.ended():
                    self.finish()
                    return
            except Exception as error:
                if not self._over.is_set():
                    self.error = error
                    self.give_up()
                return
