"""The sockets between Spark's Java and the Python processes beside it.

On TCP, Java holds a small message back until the one before it is acknowledged (RFC 896), and acknowledgements may wait
(RFC 1122, section 4.2.3.2), on Linux some 40 ms: a batch with little input would mostly wait. Sockets in the file
system have no acknowledgements. Where there are none, workers acknowledge at once.
"""

from __future__ import annotations

import os
import socket
import stat
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from typing import Final

import pyarrow as pa

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"  # earlier versions ignore it
_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONGEST: Final = 61  # Spark allows no longer folder, as the path of a socket has at most 104 bytes
_ON_EXECUTORS: Final = "/tmp"  # the temporary folder of a container of YARN is too long
_QUICK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)  # Linux has it


def socket_settings(master: str, folder: str) -> dict[str, str]:
    """Returns the settings of a Spark that starts on `master`, for sockets in the file system.

    They are in `folder`, which only this user can enter, if all workers are on this machine. There are no settings if
    its path is too long, or no socket can be made in it.
    """
    place = folder if master.startswith("local") else _ON_EXECUTORS
    if len(os.fsencode(place)) > _LONGEST or not _has_sockets(place):
        return {}
    return {_ENABLED: "true", _FOLDER: place}


def _has_sockets(folder: str) -> bool:
    path = os.path.join(folder, f".{uuid.uuid4()}.sock")
    try:
        with closing(socket.socket(socket.AF_UNIX)) as asked:
            asked.bind(path)
        os.remove(path)
    except (AttributeError, OSError):
        return False
    return True


def acknowledged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches that Java sends to this worker. Its messages are acknowledged at once."""
    while True:
        for tcp in from_java():
            with tcp, suppress(OSError):
                tcp.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)  # only for the next messages
        batch = next(batches, None)
        if batch is None:
            return
        yield batch


def from_java() -> Iterator[socket.socket]:
    """Yields the connections of this worker within its machine that it had when its first task began: those with Java.

    They are duplicates, for the caller to close.
    """
    for number, inode in _numbers():
        with suppress(OSError):
            if os.fstat(number).st_ino == inode:  # else it was closed, and the number is that of another file
                yield socket.socket(fileno=os.dup(number))


@cache
def _numbers() -> tuple[tuple[int, int], ...]:
    """Returns the file numbers of these connections, each with its inode."""
    found = dict[int, int]()
    with suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd") if _QUICK else ()):
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISSOCK(status.st_mode) and _is_within(number):
                    found[status.st_ino] = number  # several numbers may belong to one connection
    return tuple((number, inode) for inode, number in found.items())


def _is_within(number: int) -> bool:
    """True for a TCP connection with a process of this machine."""
    with socket.socket(fileno=os.dup(number)) as one:
        return one.family in (socket.AF_INET, socket.AF_INET6) and one.getpeername()[0] in (
            "127.0.0.1",
            "::1",
        )
