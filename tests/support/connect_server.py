"""A Spark Connect server in a process of its own, from PySpark's pip package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

from beamlike.spark.session.java import find_java
from beamlike.spark.session.session import EARLY
from tests.faults.processes import descendants, kill

_SERVE: Final = """
import json, socket, sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
settings = {
    "spark.master": "local[2]",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": str(port),
    "spark.ui.enabled": "false",
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine starts Python slowly
    **json.loads(sys.argv[1]),
}
SparkSession(SparkContext(conf=SparkConf().setAll([*settings.items()])))
print(port, flush=True)
sys.stdin.read()
"""


@attrs.frozen
class Server:
    """A running server."""

    process: subprocess.Popen[str]
    port: int

    @classmethod
    def start(cls, folder: Path, settings: Mapping[str, str] | None = None) -> Self:
        """Starts the server where it cannot import this project: the path and the folder are without its code.

        The path has only `sitecustomize`. Without it, a worker on a busy machine takes longer to start than the ten
        seconds that the server waits.
        """
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(EARLY), "PYSPARK_PYTHON": sys.executable}
        environment["JAVA_HOME"] = str(find_java().home)
        with (folder / "server.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE, json.dumps({**(settings or {})})],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert process.stdout is not None
        return cls(process, int(process.stdout.readline()))

    def session(self) -> Any:
        """Returns a new session of this process on the server."""
        from pyspark.sql.connect.session import SparkSession

        return SparkSession.builder.remote(f"sc://127.0.0.1:{self.port}").create()

    def kill(self) -> None:
        """Kills the server, as a failing machine would."""
        kill([*descendants(self.process.pid), self.process.pid])
        self._close()

    def stop(self) -> None:
        """Stops the server in order."""
        self.process.communicate(timeout=60)

    def _close(self) -> None:
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
