"""A Redis server on this machine, and operations on its streams for tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import pytest


@attrs.frozen
class Queues:
    """A server, by its address."""

    url: str

    @property
    def client(self) -> Any:
        """A new client, which decodes answers as text."""
        from redis import Redis

        return Redis.from_url(self.url, decode_responses=True)

    def stream(self) -> str:
        """Returns a unique name for a stream."""
        return f"plays-{uuid.uuid4().hex[:8]}"

    def send(self, stream: str, *plays: Mapping[str, Any], name: str = "*") -> list[str]:
        """Adds messages and returns their ids."""
        with self.client as client:
            return [client.xadd(stream, dict(play), id=name) for play in plays]

    def unacknowledged(self, stream: str, group: str) -> int:
        """Returns the number of messages that the group has received and not acknowledged."""
        with self.client as client:
            return int(client.xpending(stream, group)["pending"])


@contextmanager
def redis_server() -> Iterator[Queues]:
    """Runs a server and yields it; skips the test where none is installed."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("Redis is not installed (on Debian and Ubuntu: apt install redis-server)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        run = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", ""]
        with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                queues = Queues(f"redis://127.0.0.1:{port}/0")
                _wait(queues, server)
                yield queues
            finally:
                server.kill()


def _wait(queues: Queues, server: subprocess.Popen[bytes]) -> None:
    from redis.exceptions import ConnectionError as NotThere

    for _ in range(100_000):
        assert server.poll() is None, "the server has ended"
        try:
            with queues.client as client:
                client.ping()
        except NotThere:
            continue
        return
    raise TimeoutError("the server does not answer")
