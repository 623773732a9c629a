"""A local object store with the S3 interface."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attrs
import pytest


@attrs.frozen
class Store:
    """An endpoint with the credentials of its clients."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """The options for deltalake and polars."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": "tests",
            "aws_secret_access_key": "hunter2",
            "aws_region": "eu-central-1",
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }

    @property
    def of_iceberg(self) -> dict[str, str]:
        """The options for PyIceberg."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "tests",
            "s3.secret-access-key": "hunter2",
            "s3.region": "eu-central-1",
        }

    @property
    def of_hadoop(self) -> dict[str, str]:
        """Spark's settings besides the environment: no request for `100 Continue`, which this store answers late.

        The client that copies files sends this request in any case.
        """
        no = ("connection.expect.continue", "optimized.copy.from.local.enabled")
        return {f"spark.hadoop.fs.s3a.{name}": "false" for name in no}

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Sets the environment variables by which all clients find the store."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.options.items():
                patch.setenv(name.upper(), value)
            yield

    def bucket(self) -> str:
        """Creates a bucket."""
        import boto3

        name = f"bucket-{uuid.uuid4().hex[:8]}"
        keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "hunter2"}
        client = boto3.client("s3", endpoint_url=self.endpoint, region_name="eu-central-1", **keys)
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        return name


@contextmanager
def object_store(log: IO[str] | int = subprocess.DEVNULL) -> Iterator[Store]:
    """Runs a store and yields it; skips the test where moto is not installed. `log` has a line for each request."""
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A process of its own: clients may keep this one from running any Python while they wait.
    run = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=log) as server:
        try:
            _wait(port, server)
            yield Store(f"http://127.0.0.1:{port}")
        finally:
            server.kill()


_REQUEST = re.compile(r"([A-Z]+) /([^/? ]+)/?(\S*) HTTP")


def requests(log: Path, bucket: str) -> Iterator[tuple[str, str]]:
    """Yields the method and the path of each request for a bucket in the log of a store."""
    for method, of, path in _REQUEST.findall(log.read_text()):
        if of == bucket:
            yield method, path


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(100_000):
        assert server.poll() is None, "the store has ended"
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=60):
            return
    raise TimeoutError("the store does not answer")
