"""A server of Redis on this machine, and what tests do with its streams."""

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
        """A client of its own, which answers in text."""
        from redis import Redis

        return Redis.from_url(self.url, decode_responses=True)

    def stream(self) -> str:
        """A name that no other stream has."""
        return f"plays-{uuid.uuid4().hex[:8]}"

    def send(self, stream: str, *plays: Mapping[str, Any], name: str = "*") -> list[str]:
        """Adds messages, and gives their ids."""
        with self.client as client:
            return [client.xadd(stream, dict(play), id=name) for play in plays]

    def unacknowledged(self, stream: str, group: str) -> int:
        """How many messages the group was given and has not acknowledged."""
        with self.client as client:
            return int(client.xpending(stream, group)["pending"])


@contextmanager
def redis_server() -> Iterator[Queues]:
    """A server that is there for this long; skips where there is none to start."""
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
