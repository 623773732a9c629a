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
        for tcp in _from_java():
            with suppress(OSError):
                tcp.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)  # only for the next messages
        batch = next(batches, None)
        if batch is None:
            return
        yield batch


@cache
def _from_java() -> tuple[socket.socket, ...]:
    """Returns the TCP connections of this worker within its machine when its first task begins: that with Java."""
    if not _QUICK:
        return ()
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                one = socket.socket(fileno=os.dup(number))
                found[one.getsockname()] = one  # several numbers may belong to one connection
    return tuple(
        tcp for tcp in found.values() if tcp.family in (socket.AF_INET, socket.AF_INET6) and _within(tcp)
    )


def _within(tcp: socket.socket) -> bool:
    try:
        return tcp.getpeername()[0] in ("127.0.0.1", "::1")
    except OSError:
        return False
