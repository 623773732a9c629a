"""The settings with which pyarrow accesses folders in S3, if a run has other settings than the environment."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import attrs

_IN_USE: Final[dict[str, Access]] = {}
"""The settings in this process, by folder."""


@attrs.frozen
class Access:
    """Settings for a folder in S3 and everything below it: arguments of pyarrow's `S3FileSystem`, sorted by name.

    pyarrow reads other settings from the environment. `repr` shows no settings, because some are secret. If an object
    is unpickled, its settings are in use in that process.
    """

    folder: str
    options: tuple[tuple[str, Any], ...] = attrs.field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return use, (self.folder, self.options)


def use(folder: str, options: tuple[tuple[str, Any], ...]) -> Access:
    """Uses these settings in this process, for a folder and everything below it."""
    _IN_USE[_without_slash(folder)] = access = Access(folder, options)
    return access


def forget(folder: str) -> None:
    """Uses the environment again for a folder."""
    _IN_USE.pop(_without_slash(folder), None)


def access_to(path: str) -> Access | None:
    """Returns the settings in use for a path; None if only the environment counts."""
    if not _IN_USE:
        return None
    folder = _without_slash(path)
    while folder not in _IN_USE:
        folder, slash, _ = folder.rpartition("/")
        if not slash:
            return None
    return _IN_USE[folder]


@lru_cache(maxsize=16)
def s3_of(access: Access) -> Any:
    """Returns pyarrow's file system with these settings; None if all are those of the environment."""
    if not access.options:
        return None
    from pyarrow import fs

    options = dict(access.options)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in options:  # pyarrow reads this variable for URIs only
        options["endpoint_override"] = endpoint
    with suppress(TypeError):  # pyarrow 20 does not have the option
        # A small object is then written with one request, not with the three of a multipart upload.
        return fs.S3FileSystem(**options, allow_delayed_open=True)
    return fs.S3FileSystem(**options)


def _without_slash(folder: str) -> str:
    return folder.rstrip("/")
