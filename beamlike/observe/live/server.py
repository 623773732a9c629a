"""Serves the live page: for the command line, and beside a run in the same process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from beamlike.observe.live.app import App
from beamlike.observe.live.catalog import Catalog
from beamlike.observe.live.guard import Access

PORT: Final = 8787
_PORTS: Final = 20
_AWAKE: Final = 0.2  # seconds between looks whether Ctrl-C was pressed
_PATIENCE: Final = 5  # seconds until open connections are closed


def serve(
    *runs: str | os.PathLike[str],
    host: str = "127.0.0.1",
    port: int | None = None,
    ready: Callable[[str], object] = print,
) -> None:
    """Serves the live page until Ctrl-C is pressed.

    Args:
        runs: Files of records, checkpoints, or folders with several of them; by default the current folder.
        host: The address to listen at. Other machines reach the page only with one of theirs, and with a token.
        port: The port; by default the first free one from 8787.
        ready: Is called with the address of the page once it is served.

    Raises:
        FileNotFoundError: A place does not exist.
        OSError: The port is in use.

    Example:
        >>> bl.observe.serve("checkpoints", port=8080)  # doctest: +SKIP
    """
    with serving(*runs, host=host, port=port) as address, contextlib.suppress(KeyboardInterrupt):
        ready(address)
        # Ctrl-C may interrupt another thread, so that this one must wake up by itself to notice it.
        while True:
            time.sleep(_AWAKE)


@contextlib.contextmanager
def serving(*runs: str | os.PathLike[str], host: str = "127.0.0.1", port: int | None = None) -> Iterator[str]:
    """Serves the live page from a thread while the `with` block lasts. The block gets its address.

    Args:
        runs: Files of records, checkpoints, or folders with several of them; by default the current folder.
        host: The address to listen at. Other machines reach the page only with one of theirs, and with a token.
        port: The port; by default the first free one from 8787.

    Raises:
        FileNotFoundError: A place does not exist.
        OSError: The port is in use.

    Example:
        >>> with bl.observe.serving("checkpoints") as address:  # doctest: +SKIP
        ...     print(address)
        http://127.0.0.1:8787/
    """
    catalog, access = Catalog.of(runs or (".",)), Access.of(host)
    listening = _listening(host, port)
    app = App(catalog)
    server = uvicorn.Server(
        uvicorn.Config(
            app.served(access),
            log_level="warning",
            lifespan="off",
            proxy_headers=False,
            timeout_graceful_shutdown=_PATIENCE,
        )
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name="beamlike-ui", daemon=True
    )
    thread.start()
    try:
        yield _address(listening, host, access)
    finally:
        app.end()
        server.should_exit = True
        thread.join()
        listening.close()


def _address(listening: socket.socket, host: str, access: Access) -> str:
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    token = f"?token={access.token}" if access.token else ""
    return f"http://{name}:{listening.getsockname()[1]}/{token}"


def _listening(host: str, port: int | None) -> socket.socket:
    """Returns a socket that listens at the port, or at the first free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(PORT, PORT + _PORTS) if port is None else (port,)
    failure: OSError | None = None
    for one in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, one))
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            failure = error
    assert failure is not None
    raise OSError(failure.errno, f"cannot listen at {host}, port {ports[0]}: {failure.strerror}")
