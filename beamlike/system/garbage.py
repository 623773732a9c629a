"""Spares garbage collection: its pauses are longer than a small batch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FREEZING: Final = threading.Lock()
_frozen = 0


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disables garbage collection inside the `with` block, because it doubles the time for ten thousand short-lived
    objects.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def frozen_objects() -> Iterator[None]:
    """Excludes the objects that exist now from garbage collection inside the `with` block.

    To go through the hundred thousand objects of the libraries takes some 40 ms, during which no batch can run. Objects
    are still deleted when nothing refers to them. Only cycles of them stay until the last of such blocks ends.
    """
    global _frozen
    with _FREEZING:
        _frozen += 1
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        with _FREEZING:
            _frozen -= 1
            if not _frozen:
                gc.unfreeze()
