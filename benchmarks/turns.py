"""A job whose process stays for several turns, so that engines are warm: the resources of each turn."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

import attrs

from benchmarks.engines import Failed
from benchmarks.measure import Usage, Watch
from benchmarks.peers.turns import ENDED

_PATIENCE = 30.0  # seconds for the process to end after its last turn


@attrs.frozen(eq=False)
class Job:
    """A process that runs the job once for each folder that it is given, with `benchmarks.peers.turns`."""

    _process: subprocess.Popen[str]
    _ended: IO[str]
    _watch: Watch

    @classmethod
    @contextmanager
    def of(cls, command: Sequence[str], env: Mapping[str, str], log: IO[str]) -> Iterator[Self]:
        """Starts the process, and ends it after the `with` block. Its output goes to `log`."""
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                env={**env, ENDED: f"{write}"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[write],
                start_new_session=True,
                text=True,
            )
        finally:
            os.close(write)  # so that the pipe ends when the process does
        watch = Watch(process.pid)
        watch.start()
        with os.fdopen(read) as ended:
            try:
                yield cls(process, ended, watch)
            finally:
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # it has ended already
                    process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                watch.ended.set()
                watch.join()

    def turn(self, folder: Path) -> Usage:
        """Runs the job on the folder. Raises `Failed` if the process has ended meanwhile."""
        assert self._process.stdin is not None
        before, began = self._watch.cpu(), time.monotonic()
        try:
            print(folder, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Failed("ended before its turn") from None
        if not self._ended.readline():
            raise Failed(f"code {self._process.wait()}")
        wall, cpu = time.monotonic() - began, self._watch.cpu() - before
        return Usage(wall, cpu, self._watch.memory, 0)
