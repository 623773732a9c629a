"""Ctrl-C: the first one asks a run to end after the batch in hand, a second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A run in process that Ctrl-C has ended after a batch; `run` has its records up to there."""

    def __init__(self, run: Any) -> None:
        super().__init__(f"{run!r} was interrupted")
        self.run = run


@contextmanager
def signals(
    stop: Callable[[], None], numbers: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """The first of these signals calls `stop`, which must not wait; a second raises `KeyboardInterrupt`.

    In the main thread only: elsewhere there are no signals, and nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        stop()

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            # One that was not set from Python cannot be set again from it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
