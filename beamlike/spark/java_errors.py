"""The errors of Spark's Java, as py4j raises them. The client of Spark Connect alone comes without py4j."""

from __future__ import annotations

import re
from typing import Final

try:
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
except ImportError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Never raised."""

    class Py4JJavaError(Exception):  # type: ignore[no-redef]
        """Never raised."""

    class Py4JNetworkError(Exception):  # type: ignore[no-redef]
        """Never raised."""


UNKNOWN_SCHEME: Final = re.compile(
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\."
)
"""Part of Hadoop's messages about a path for whose scheme it has no class."""

__all__ = ["UNKNOWN_SCHEME", "Py4JError", "Py4JJavaError", "Py4JNetworkError"]
