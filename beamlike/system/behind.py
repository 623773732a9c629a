"""Work that nobody has to wait for yet: done in order, in one thread beside the one that asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import attrs


@attrs.define(eq=False)
class Behind:
    """Does tasks in the order in which they were given. After one that fails, no other is done."""

    _thread: ThreadPoolExecutor = attrs.field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="behind"), init=False
    )
    _given: deque[Future[None]] = attrs.field(factory=deque, init=False)
    _failed: bool = attrs.field(default=False, init=False)

    def do(self, task: Callable[[], object]) -> None:
        """Has it done as soon as those before it are."""
        self._given.append(self._thread.submit(self._do, task))

    def wait(self) -> None:
        """Until all of them are done. Raises what one of them has raised."""
        while self._given:
            self._given.popleft().result()

    def close(self) -> None:
        """Waits, and raises nothing. A second call changes nothing."""
        self._thread.shutdown()

    def _do(self, task: Callable[[], object]) -> None:
        if self._failed:
            return
        self._failed = True
        task()
        self._failed = False
