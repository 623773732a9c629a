"""A standalone Spark cluster: a master and workers in their own processes, and submitted programs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyspark

from beamlike.spark.session.java import find_java
from tests.faults.processes import descendants, kill

HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_SECONDS = 600
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _SMALL,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": _SMALL,
    "spark.network.timeout": "300s",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.ui.enabled": "false",
}


@contextmanager
def standalone(workers: int = 2) -> Iterator[Standalone]:
    """Runs a cluster and yields it."""
    folder = Path(tempfile.mkdtemp(prefix="standalone-"))
    try:
        with ExitStack() as held:
            cluster = Standalone.begin(folder, held)
            cluster.until(lambda _: True)  # a worker that finds no master tries again seconds later
            for _ in range(workers):
                cluster.add_worker()
            cluster.until(lambda state: state["aliveworkers"] == workers)
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def machine() -> dict[str, str]:
    """Returns the environment of a machine on which no path leads to this repository."""
    ours = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **others,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _SMALL,
    }


@attrs.define
class Standalone:
    """A cluster, by its master; each of its workers has a core."""

    folder: Path
    port: int
    page: int
    master: subprocess.Popen[bytes]
    held: ExitStack
    workers: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    @classmethod
    def begin(cls, folder: Path, held: ExitStack) -> Standalone:
        """Starts a master."""
        port, page = _free_port(), _free_port()
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        master = _daemon(folder / "master", "master.Master", where, held)
        return cls(folder, port, page, master, held)

    @property
    def url(self) -> str:
        """The URL to which programs are submitted."""
        return f"spark://127.0.0.1:{self.port}"

    def add_worker(self) -> None:
        """Starts another worker."""
        folder = self.folder / f"worker-{len(self.workers)}"
        has = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", self.url]
        self.workers.append(_daemon(folder, "worker.Worker", [*has, *where], self.held))

    def kill_worker(self, number: int = -1) -> None:
        """Kills a worker with its executors and their Python processes, as a machine failure would."""
        worker = self.workers[number]
        kill([*descendants(worker.pid), worker.pid])
        worker.wait()

    def state(self) -> dict[str, Any]:
        """Returns the workers and applications on the master's page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Waits until a condition on `state` is true."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if holds(self.state()):
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.master.wait(0.1)
                raise RuntimeError(f"the master has ended: {_end_of(self.folder / 'master' / 'log')}")
        raise TimeoutError(f"after {_SECONDS} s the cluster is {self.state()}")

    @contextmanager
    def submit(
        self,
        program: Path,
        *arguments: object,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        python: object,
        path: object = "",
        folder: Path | None = None,
        mode: str = "client",
    ) -> Iterator[Submitted]:
        """Submits a program whose driver runs beside the cluster; `python` is the driver's.

        `path` is a folder of the driver's modules. Its working directory is `folder`, by default a new one.
        """
        own = Path(tempfile.mkdtemp(prefix="driver-", dir=self.folder))
        given = {**_SETTINGS, "spark.pyspark.driver.python": str(python), **(settings or {})}
        confs = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", mode]
        with (own / "log").open("wb") as log:
            driver = subprocess.Popen(
                [*command, *confs, *options, str(program), *map(str, arguments)],
                env={**machine(), **({"PYTHONPATH": str(path)} if path else {})},
                cwd=folder or own,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            try:
                yield Submitted(driver, own / "log")
            finally:
                end(driver)
                driver.communicate()


@attrs.frozen
class Submitted:
    """A submitted program: its output and its exit."""

    driver: subprocess.Popen[bytes]
    log: Path

    def says(self) -> Iterator[str]:
        """Yields each line that it prints, until its end."""
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            yield line.decode().strip()

    def ended(self) -> int:
        """Reads the remaining lines and returns the exit code."""
        for _ in self.says():
            pass
        return self.driver.wait(_SECONDS)

    def succeed(self) -> None:
        """Waits for the end of the program, which must succeed."""
        said = list(self.says())  # with the traceback, under spark-submit
        assert self.ended() == 0, "\n".join([_end_of(self.log), *said])


def _daemon(folder: Path, name: str, arguments: list[str], held: ExitStack) -> subprocess.Popen[bytes]:
    folder.mkdir()
    environment = {**machine(), "SPARK_LOCAL_DIRS": str(folder)}
    log = held.enter_context((folder / "log").open("wb"))
    command = [str(HOME / "bin" / "spark-class"), f"{_DEPLOY}.{name}", *arguments]
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    held.callback(end, process)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its children if it has not ended."""
    if process.poll() is None:
        kill([*descendants(process.pid), process.pid])
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:]
