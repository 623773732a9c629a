"""The second thread of a journal, which changes the database while the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import Any

import attrs

from beamlike.system.behind import Behind

Change = Callable[[], object]


@attrs.define(eq=False)
class ChangesBehind(Behind):
    """A background thread that changes a database. Changes that wait side by side share a transaction and a sync.

    `transaction` creates the context manager of a transaction.
    """

    transaction: Callable[[], AbstractContextManager[None]]
    _queue: Any = attrs.field(factory=Lock, init=False)
    _waiting: list[Change] | None = attrs.field(default=None, init=False)
    """Changes at the end of the queue; None if it ends with something else."""

    def do(self, task: Callable[[], object]) -> None:
        with self._queue:
            self._waiting = None
            super().do(task)

    def add(self, change: Change) -> None:
        """Adds a change to the end of the queue."""
        with self._queue:
            if self._waiting is not None:
                self._waiting.append(change)
                return
            self._waiting = [change]
            super().do(partial(self._write, self._waiting))

    def _write(self, changes: list[Change]) -> None:
        with self._queue:
            if self._waiting is changes:
                self._waiting = None
        with self.transaction():
            for change in changes:
                change()
