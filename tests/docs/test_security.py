"""The claims of docs/security.md: the tests that it names exist, and local services are closed to other users."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from beamlike.spark.session.scratch import scratch
from tests.support.places import ROOT

_LISTENS = "0A"
_LOOPBACK = re.compile(r"0100007F|0{24}01000000|0{16}FFFF00000100007F")  # 127.0.0.1, ::1, ::ffff:127.0.0.1


def test_the_tests_that_are_named_are_there() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_nobody_else_may_enter_temporary_folders() -> None:
    assert stat.S_IMODE(scratch().stat().st_mode) == 0o700


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who listens")
def test_a_spark_that_is_started_here_listens_to_this_machine_only(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None
    sockets = {link for process in family(os.getpid()) for link in opened(process)}
    listening = [address for address, socket in listeners() if socket in sockets]
    assert listening
    assert [address for address in listening if not _LOOPBACK.fullmatch(address)] == []


def family(process: int) -> Iterator[int]:
    """Yields a process and those that it has started."""
    yield process
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from family(int(child))


def opened(process: int) -> Iterator[str]:
    """Yields the numbers of a process's sockets."""
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended or closed the file
        for link in Path(f"/proc/{process}/fd").iterdir():
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link)):
                yield found[1]


def listeners() -> Iterator[tuple[str, str]]:
    """Yields the address, in hexadecimal, and the number of each listening socket of this machine."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                yield fields[1].partition(":")[0], fields[9]
