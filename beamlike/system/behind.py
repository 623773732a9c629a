"""A background thread that runs tasks whose results are not needed yet, in their order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import attrs


@attrs.define(eq=False)
class Behind:
    """A background thread that runs tasks one after the other. If a task fails, later tasks are skipped."""

    _thread: ThreadPoolExecutor = attrs.field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="behind"), init=False
    )
    _given: deque[Future[None]] = attrs.field(factory=deque, init=False)
    _failed: bool = attrs.field(default=False, init=False)

    def do(self, task: Callable[[], object]) -> None:
        """Adds a task to the end of the queue."""
        self._given.append(self._thread.submit(self._do, task))

    def check(self) -> None:
        """Raises the error of a task that has failed, without waiting for others."""
        while self._given and self._given[0].done():
            self._given.popleft().result()

    def wait(self, within: float | None = None) -> bool:
        """Waits for all tasks, or at most `within` seconds. Returns True if all are done. Raises the error of a task
        that failed.
        """
        due = None if within is None else time.monotonic() + within
        while self._given:
            wait([self._given[0]], timeout=None if due is None else max(0.0, due - time.monotonic()))
            if not self._given[0].done():
                return False
            self._given.popleft().result()
        return True

    def close(self) -> None:
        """Waits for all tasks, without raising their errors. Later calls have no effect."""
        self._thread.shutdown()

    def _do(self, task: Callable[[], object]) -> None:
        if self._failed:
            return
        self._failed = True
        task()
        self._failed = False
