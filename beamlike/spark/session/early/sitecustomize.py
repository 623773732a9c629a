"""The first code of a Python worker of Spark, which shortens its start. Python imports this module by itself.

It makes the worker import the installed, compiled pyspark. Otherwise Spark's zip file of sources comes first on the
path, and every worker would compile these again, which needs more than a second of CPU time.

The workers that check stateful operators on the driver, and that call `foreachBatch` functions on a server of Spark
Connect, connect before they import pyspark. Spark waits only ten seconds for the connection, and on a busy machine the
imports can take longer.
"""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import sys
from importlib.machinery import PathFinder
from typing import Any, Final

_WAITED_FOR: Final = (
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
)


def _connected(port: int, secret: str) -> tuple[io.BufferedRWPair, socket.socket]:
    """Connects like `pyspark.util.local_connect_and_auth`. At the other end, SocketAuthHelper waits for the secret."""
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
    """Moves Spark's zip files to the end of the path, if the pyspark that contains them is itself importable."""
    zips = [entry for entry in sys.path if entry.endswith(".zip") and _of_installed(os.path.dirname(entry))]
    sys.path[:] = [entry for entry in sys.path if entry not in zips] + zips


def _of_installed(folder: str) -> bool:
    """True if this is the folder `python/lib` of a pyspark that Python finds."""
    home = os.path.dirname(os.path.dirname(folder))
    is_lib = folder == os.path.join(home, "python", "lib") and os.path.basename(home) == "pyspark"
    # The environment may be found by a link to it.
    installed = is_lib and os.path.realpath(os.path.dirname(home)) in map(os.path.realpath, sys.path)
    return installed and os.path.exists(os.path.join(home, "__init__.py"))


def _connect_first() -> None:
    """Connects, and makes pyspark use this connection instead of its own."""
    made = [
        _connected(int(os.environ["PYTHON_WORKER_FACTORY_PORT"]), os.environ["PYTHON_WORKER_FACTORY_SECRET"])
    ]
    import pyspark.util

    connect = pyspark.util.local_connect_and_auth

    def found(*asked: Any) -> Any:
        return made.pop() if made else connect(*asked)

    setattr(pyspark.util, connect.__name__, found)


def _import_next() -> None:
    """Imports the `sitecustomize` that Python would have imported without this one."""
    here = os.path.dirname(__file__)
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_zips_last()
# Not with Unix sockets, where there are no ports; and not in a child process that inherits the variables.
if sys.orig_argv[-1] in _WAITED_FOR and "PYTHON_WORKER_FACTORY_PORT" in os.environ:
    _connect_first()
_import_next()
