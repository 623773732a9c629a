"""Clients that a process keeps from batch to batch, since to connect takes longer than to send a small batch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import attrs

T = TypeVar("T")

_MOST: Final = 8


@attrs.define(eq=False)
class KeptClients(Generic[T]):
    """Clients by what they are used for. Of more than eight, those that were used least recently are closed."""

    close: Callable[[T], object]
    _clients: OrderedDict[Hashable, T] = attrs.field(factory=OrderedDict, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def take(self, use: Hashable) -> T | None:
        """Takes the client for this use out, so that no other thread uses it. None if there is none."""
        with self._turn:
            return self._clients.pop(use, None)

    def keep(self, use: Hashable, client: T) -> None:
        """Keeps a client, which must have nothing left to send."""
        with self._turn:
            before = self._clients.pop(use, None)
            self._clients[use] = client
            old = [self._clients.popitem(last=False)[1] for _ in range(len(self._clients) - _MOST)]
        for one in old if before is None else [before, *old]:
            self.close(one)
