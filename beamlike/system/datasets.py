"""Names of the data that sources read and sinks write, according to OpenLineage's naming conventions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from beamlike.system.path_names import is_remote

Dataset = tuple[str, str]
"""The namespace of a dataset, and its name in this namespace: `("kafka://broker:9092", "plays")`."""

_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_OBJECTS: Final = ("s3", "gs", "abfss", "wasbs")
"""The schemes of object stores. There, the name of a dataset does not begin with a slash."""


def file_dataset(path: str) -> Dataset:
    """Returns the dataset of a path or a URL, without user and password.

    >>> file_dataset("s3a://plays/2026")
    ('s3://plays', '2026')
    >>> file_dataset("/data/plays")
    ('file', '/data/plays')
    """
    if not is_remote(path):
        return "file", os.path.abspath(path).rstrip("/") or "/"
    url = urlsplit(path)
    scheme = _SAME.get(url.scheme, url.scheme)
    if scheme == "file":
        return "file", url.path.rstrip("/") or "/"
    # In an Azure URL, the part before the @ is the container; in other URLs it is the user.
    user, _, host = url.netloc.rpartition("@")
    where = f"{user}@{host}" if scheme in ("abfss", "wasbs") and ":" not in user and user else host
    name = url.path.strip("/") if scheme in _OBJECTS else url.path.rstrip("/")
    return f"{scheme}://{where}", name or "/"


def file_datasets(paths: Iterable[str]) -> list[Dataset]:
    """Returns the distinct datasets of these paths, in order."""
    return list(dict.fromkeys(map(file_dataset, paths)))


def server_dataset(scheme: str, servers: str, port: int, name: str) -> Dataset:
    """Returns a dataset on the first of several servers. `port` is used if that server is given without a port.

    >>> server_dataset("kafka", "b1, b2:9093", 9092, "plays")
    ('kafka://b1:9092', 'plays')
    """
    first = servers.partition(",")[0].strip()
    host = first.rpartition("://")[2]
    has_port = ":" in host.rpartition("]")[2]
    return f"{scheme}://{host if has_port else f'{host}:{port}'}", name


_SQL: Final = {"postgresql": "postgres", "mssql": "sqlserver"}


def table_dataset(place: Sequence[str]) -> Dataset:
    """Returns the dataset of a table, which is given as kind of database, host, port, database, schema and table.

    For SQLite, it is given as "sqlite", file and table.

    >>> table_dataset(("postgresql", "db", "5432", "games", "public", "plays"))
    ('postgres://db:5432', 'games.public.plays')
    """
    kind, *where = place
    scheme = _SQL.get(kind, kind)
    if kind == "sqlite":
        path, *names = where
        return f"sqlite://{path}", ".".join(filter(None, names))
    host, port, *names = where
    return f"{scheme}://{host}:{port}", ".".join(filter(None, names))
