"""A relay between clients and a Kafka broker that can delay a request or lose its answer."""

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
        """Closes the client's side; the broker's side stays open."""
        self.is_cut = True
        _end(self.client)

    def close(self) -> None:
        """Closes both sides."""
        self.cut()
        _end(self.broker)

    def answers(self) -> None:
        """Passes on answers while the client is connected."""
        with suppress(OSError):
            while data := self.broker.recv(65536):
                if self.is_cut:
                    self.answered.set()
                else:
                    self.client.sendall(data)
        self.answered.set()


@attrs.define(eq=False)
class Relay:
    """Passes all requests on; on demand, delays or loses one request to end a transaction."""

    _port: int
    _plan: Literal["delay", "lose"] | None = None
    _delayed: tuple[Connection, bytes] | None = None
    happened: threading.Event = attrs.field(factory=threading.Event)
    connections: list[Connection] = attrs.field(factory=list)

    def delay(self) -> None:
        """Holds the next end of a transaction until `deliver`, and disconnects its client."""
        self._plan = "delay"
        self.happened.clear()

    def lose(self) -> None:
        """Passes on the next end of a transaction, and loses the answer with the connection."""
        self._plan = "lose"
        self.happened.clear()

    def deliver(self) -> None:
        """Sends the delayed request to the broker, and waits for its answer."""
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
    """Reads one request with its length; empty at the end."""
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
    """Runs a relay from one port to another, and yields it."""
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
