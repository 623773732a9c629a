"""A relay between clients and a server that is unwell: it refuses, delays or cuts some of the requests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Literal

import attrs

from tests.support.places import ROOT

Trouble = Literal["refuse", "delay", "cut"]
"""A refused request is answered by the relay, or loses its connection. A cut one is done, and its answer is lost."""

TROUBLES: Final[tuple[Trouble, ...]] = ("refuse", "delay", "cut")

SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)
_BODY: Final = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

_SECONDS: Final = 0.05
_PATIENCE: Final = 10.0


@attrs.define(eq=False)
class _Relay:
    """A relay to a server. A request is what a client sends at once. Each bad one is written to standard output."""

    _connect: Callable[[], socket.socket]
    _trouble: Trouble
    _one_in: int
    _refusal: bytes
    _random: Random = attrs.field(factory=lambda: Random(7))
    _requests: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def _is_bad(self) -> bool:
        with self._lock:
            self._requests += 1
            # An early one is always bad, so that a short run has some.
            bad = self._requests == self._one_in // 4 or self._random.randrange(self._one_in) == 0
            if bad:
                os.write(1, b".")
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


@attrs.frozen
class Unwell:
    """A relay in a process of its own, since clients may keep this one from running any Python while they wait."""

    port: int
    _log: Path

    @property
    def happened(self) -> int:
        """The number of requests that were treated badly."""
        return self._log.stat().st_size


@contextmanager
def unwell(
    to: int | str, trouble: Trouble, *, one_in: int = 20, port: int = 0, s3: bool = False
) -> Iterator[Unwell]:
    """Runs a relay to a server, and yields it. `to` is a port of this machine, or a socket file.

    `s3`: requests are refused in the words of an object store that is busy.
    """
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    run = [sys.executable, "-m", "tests.connectors.unwell", *map(str, (port, to, trouble, one_in, int(s3)))]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as file, subprocess.Popen(run, stdout=file, cwd=ROOT) as server:
            try:
                _wait(port, server)
                yield Unwell(port, log)
            finally:
                server.kill()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(100_000):
        assert server.poll() is None, "the relay has ended"
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=60):
            return
    raise TimeoutError("the relay does not answer")


def _connection(to: str) -> socket.socket:
    if to.isdigit():
        return socket.create_connection(("127.0.0.1", int(to)))
    made = socket.socket(socket.AF_UNIX)
    made.connect(to)
    return made


def main(port: str, to: str, trouble: Trouble, one_in: str, s3: str) -> None:
    """Serves until the process is killed."""
    refusal = SLOW_DOWN % (len(_BODY), _BODY) if int(s3) else b""
    relay = _Relay(partial(_connection, to), trouble, int(one_in), refusal)
    with socket.create_server(("127.0.0.1", int(port))) as here:
        while True:
            client, _ = here.accept()
            threading.Thread(target=relay.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
