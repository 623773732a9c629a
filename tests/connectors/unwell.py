"""A relay between clients and a server that is unwell: it refuses, delays or cuts some of the requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final, Literal

import attrs

Trouble = Literal["refuse", "delay", "cut"]
"""A refused request is answered by the relay, or loses its connection. A cut one is done, and its answer is lost."""

TROUBLES: Final[tuple[Trouble, ...]] = ("refuse", "delay", "cut")

SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)
_BODY: Final = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

_SECONDS: Final = 0.2
_PATIENCE: Final = 10.0


@attrs.define(eq=False)
class Unwell:
    """A relay at a port. `happened` is the number of requests that were treated badly.

    A request is what a client sends at once. The first `spared` ones of a connection are passed on, as they open it.
    """

    port: int
    _connect: Callable[[], socket.socket]
    _trouble: Trouble
    _one_in: int
    _refusal: bytes
    _random: Random
    happened: int = attrs.field(default=0, init=False)
    requests: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def _is_bad(self) -> bool:
        with self._lock:
            self.requests += 1
            # The first one is always bad, so that a short run has some.
            bad = self.requests == self._one_in // 4 or self._random.randrange(self._one_in) == 0
            self.happened += bad
        return bad

    def serve(self, client: socket.socket) -> None:
        """Passes on what a client sends, and what the server answers."""
        server, lost = self._connect(), threading.Event()
        answers = threading.Thread(target=self._answers, args=(server, client, lost), daemon=True)
        answers.start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._is_bad():
                    if self._trouble == "refuse":
                        lost.set()
                        client.sendall(self._refusal)
                        break
                    if self._trouble == "cut":
                        lost.set()
                        server.sendall(data)
                        answers.join(_PATIENCE)  # the server has done it
                        break
                    threading.Event().wait(_SECONDS)
                server.sendall(data)
        _close(client)
        _close(server)

    def _answers(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if lost.is_set():
                    return
                client.sendall(data)
        _close(client)


def _close(side: socket.socket) -> None:
    with suppress(OSError), side:
        side.shutdown(socket.SHUT_RDWR)


def refusal_of_s3() -> bytes:
    """Returns the answer of a store that is busy."""
    return SLOW_DOWN % (len(_BODY), _BODY)


@contextmanager
def unwell(
    connect: Callable[[], socket.socket],
    trouble: Trouble,
    *,
    one_in: int = 20,
    refusal: bytes = b"",
    port: int = 0,
) -> Iterator[Unwell]:
    """Runs a relay to a server, and yields it. `connect` opens a connection to the server."""
    with socket.create_server(("127.0.0.1", port)) as here:
        made = Unwell(here.getsockname()[1], connect, trouble, one_in, refusal, Random(7))

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = here.accept()
                    threading.Thread(target=made.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield made
        finally:
            here.shutdown(socket.SHUT_RDWR)


def to_port(port: int) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of this machine."""
    return lambda: socket.create_connection(("127.0.0.1", port))


def to_socket(path: str) -> Callable[[], socket.socket]:
    """Returns a function that connects to a socket file."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return connect
