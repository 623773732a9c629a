"""Ctrl-C: the first one asks a run to end after the batch in hand, a second ends it at once, but not in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_BOTH: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run in process that Ctrl-C has ended after a batch; `run` has its records up to there."""

    def __init__(self, run: Any) -> None:
        super().__init__(f"{run!r} was interrupted")
        self.run = run


@contextmanager
def signals(stop: Callable[[], None], numbers: tuple[signal.Signals, ...] = _BOTH) -> Iterator[None]:
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
        _restore(before)


@contextmanager
def held_back() -> Iterator[None]:
    """What must not be left half done: a signal that comes meanwhile does what it does after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _BOTH}
    try:
        yield
    finally:
        _restore(before)
    for number in came:  # an error ends it anyway
        signal.raise_signal(number)


def _restore(before: dict[signal.Signals, Any]) -> None:
    for number, handler in reversed(before.items()):  # Ctrl-C last: from then on it may interrupt this
        # One that was not set from Python cannot be set again from it.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
