"""Handles Ctrl-C: the first stops a run after the current batch, the second at once, but not in critical sections."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_BOTH: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Raised when Ctrl-C has ended a run in process after a batch. `run` has its records."""

    def __init__(self, run: Any) -> None:
        super().__init__(f"{run!r} was interrupted")
        self.run = run


@contextmanager
def signals(stop: Callable[[], None], numbers: tuple[signal.Signals, ...] = _BOTH) -> Iterator[None]:
    """Calls `stop`, which must not wait, on the first of these signals. Raises `KeyboardInterrupt` on the second.

    Works only in the main thread, because other threads receive no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True
        stop()

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def held_back() -> Iterator[None]:
    """Delays signals that arrive inside the `with` block until its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in _BOTH}
    try:
        yield
    finally:
        _restore(before)
    for number in received:  # not after an error, which ends the run anyway
        signal.raise_signal(number)


def _restore(before: dict[signal.Signals, Any]) -> None:
    for number, handler in reversed(
        before.items()
    ):  # Ctrl-C is restored last, because it may interrupt this function as soon as it is
        # A handler that was not set from Python cannot be restored from Python.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
