"""A relay between clients and a broker of Kafka that can delay a request, or lose its answer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

import attrs

END_TXN: Final = 26
"""The key of requests that commit or abort a transaction, in Kafka's protocol."""

_PATIENCE: Final = 30.0  # seconds


@attrs.define(eq=False)
class Connection:
    """A client's connection, and the relay's own to the broker."""

    client: socket.socket
    broker: socket.socket
    is_cut: bool = False
    answered: threading.Event = attrs.field(factory=threading.Event)

    def cut(self) -> None:
        """Ends the client's side; the broker's stays."""
        self.is_cut = True
        _end(self.client)

    def close(self) -> None:
        """Ends both sides."""
        self.cut()
        _end(self.broker)

    def answers(self) -> None:
        """Passes on answers, while the client is there."""
        with suppress(OSError):
            while data := self.broker.recv(65536):
                if self.is_cut:
                    self.answered.set()
                else:
                    self.client.sendall(data)
        self.answered.set()


@attrs.define(eq=False)
class Relay:
    """Passes everything on, but for one request to end a transaction when it is asked to."""

    _port: int
    _plan: Literal["delay", "lose"] | None = None
    _delayed: tuple[Connection, bytes] | None = None
    happened: threading.Event = attrs.field(factory=threading.Event)
    connections: list[Connection] = attrs.field(factory=list)

    def delay(self) -> None:
        """The next end of a transaction is kept, and its client is cut off, until `deliver`."""
        self._plan = "delay"
        self.happened.clear()

    def lose(self) -> None:
        """The next end of a transaction reaches the broker, and the answer is lost with the connection."""
        self._plan = "lose"
        self.happened.clear()

    def deliver(self) -> None:
        """The delayed request reaches the broker, which has answered it when this returns."""
        assert self._delayed is not None, "nothing was delayed"
        (connection, request), self._delayed = self._delayed, None
        connection.broker.sendall(request)
        assert connection.answered.wait(_PATIENCE)

    def serve(self, client: socket.socket) -> None:
        """Passes on the requests of a client."""
        connection = Connection(client, socket.create_connection(("127.0.0.1", self._port)))
        self.connections.append(connection)
        threading.Thread(target=connection.answers, daemon=True).start()
        with suppress(OSError):
            while request := _request(client):
                [key] = struct.unpack(">h", request[4:6])
                plan, self._plan = (self._plan, None) if key == END_TXN else (None, self._plan)
                if plan is None:
                    connection.broker.sendall(request)
                    continue
                self._interfere(plan, connection, request)
                return
        connection.close()

    def _interfere(self, plan: str, connection: Connection, request: bytes) -> None:
        connection.is_cut = True
        if plan == "delay":
            self._delayed = connection, request
        else:
            connection.broker.sendall(request)
            assert connection.answered.wait(_PATIENCE)
        self.happened.set()
        connection.cut()


def _end(side: socket.socket) -> None:
    with suppress(OSError), side:
        side.shutdown(socket.SHUT_RDWR)


def _request(client: socket.socket) -> bytes:
    """One request with its length; nothing at the end."""
    head = _bytes(client, 4)
    return head + _bytes(client, *struct.unpack(">i", head)) if head else b""


def _bytes(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (data := client.recv(count - len(found))):
            return b""
        found += data
    return found


@contextmanager
def relay(port: int, to: int) -> Iterator[Relay]:
    """A relay from one port to another, for this long."""
    made = Relay(to)
    with socket.create_server(("127.0.0.1", port)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=made.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)  # or the port is in use while it accepts
            for connection in made.connections:
                connection.close()
