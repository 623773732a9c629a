"""The first code of a Python worker of Spark, which makes it start soon. Python imports this file at its start.

It imports pyspark as it was installed, and compiled. Spark puts a zip file of its sources before that, which every
worker would compile again, in more than a second of CPU time.

The worker that checks stateful operators on the driver connects before it imports pyspark: Spark waits ten seconds for
the connection, a fixed time, and the imports can take longer on a busy machine.
"""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import sys
from importlib.machinery import PathFinder
from typing import Any, Final

_WAITED_FOR: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


def _connected(port: int, secret: str) -> tuple[io.BufferedRWPair, socket.socket]:
    """Connects as `pyspark.util.local_connect_and_auth`; SocketAuthHelper, on the other end, waits for the secret."""
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection(
        (host, port), float(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", 15))
    )
    stream = connection.makefile("rwb")
    sent = secret.encode()
    stream.write(len(sent).to_bytes(4, "big") + sent)
    stream.flush()
    length = int.from_bytes(stream.read(4), "big")
    if stream.read(length) != b"ok":
        raise ConnectionError("Spark refused the secret that it had sent")
    return stream, connection


def _zips_last() -> None:
    """Moves Spark's zip files to the end of the path, if the pyspark that contains them can be imported itself."""
    zips = [entry for entry in sys.path if entry.endswith(".zip") and _of_installed(os.path.dirname(entry))]
    sys.path[:] = [entry for entry in sys.path if entry not in zips] + zips


def _of_installed(folder: str) -> bool:
    """True if this is `python/lib` of a pyspark that Python finds."""
    home = os.path.dirname(os.path.dirname(folder))
    is_lib = folder == os.path.join(home, "python", "lib") and os.path.basename(home) == "pyspark"
    return is_lib and os.path.dirname(home) in sys.path and os.path.exists(os.path.join(home, "__init__.py"))


def _connect_first() -> None:
    """Connects, and lets pyspark use this connection in place of its own."""
    made = [
        _connected(int(os.environ["PYTHON_WORKER_FACTORY_PORT"]), os.environ["PYTHON_WORKER_FACTORY_SECRET"])
    ]
    import pyspark.util

    connect = pyspark.util.local_connect_and_auth

    def found(*asked: Any) -> Any:
        return made.pop() if made else connect(*asked)

    setattr(pyspark.util, connect.__name__, found)


def _import_next() -> None:
    """The `sitecustomize` that Python would have imported without this one."""
    here = os.path.dirname(__file__)
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_zips_last()
# Not where there are no ports, but sockets of the file system; nor in a process that inherits the variables.
if _WAITED_FOR in sys.orig_argv and "PYTHON_WORKER_FACTORY_PORT" in os.environ:
    _connect_first()
_import_next()
