"""The versions of Spark that pipelines run on, and the differences between them.

No other module depends on a version of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

OLDEST: Final = (4, 0)
OLDEST_CONNECT: Final = (4, 1)
"""The oldest version whose sessions of Spark Connect can be cloned."""
NEWEST: Final = (4, 3)

_WITH_ROW_OPERATORS: Final = (4, 1)

Version = tuple[int, int]

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_SCALA: Final = "2.13"
_DELTA: Final = "4.4.0"
_DELTA_FITS: Final = ((4, 0), (4, 1), (4, 2))
"""The newest release of Delta Lake, and the versions of Spark for which it has packages."""


class UnsupportedSpark(ImportError):
    """Raised for a version of Spark on which pipelines do not run. The message has the supported range."""


def version_of(text: str) -> Version:
    """Parses a version such as "4.1.2", which a vendor may have extended. Raises `UnsupportedSpark` for text without
    numbers.
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise UnsupportedSpark(f"{text!r} is no version of Spark; {_range()}")
    return int(found[1]), int(found[2])


def _range(since: Version = OLDEST) -> str:
    oldest, newest = (".".join(map(str, version)) for version in (since, NEWEST))
    pin = f"pyspark>={oldest},<{NEWEST[0]}.{NEWEST[1] + 1}"
    what = "Spark" if since == OLDEST else "Spark Connect"
    return f"beamlike runs on {what} {oldest} to {newest}: pip install '{pin}'"


def require_supported(text: str, what: str, since: Version = OLDEST) -> None:
    """Raises `UnsupportedSpark` for a version out of range. `what` names its owner, such as "the session". `since` is
    the oldest version that is supported.
    """
    if not since <= version_of(text) <= NEWEST:
        raise UnsupportedSpark(f"{what} is of Spark {text}; {_range(since)}")


def installed() -> Version:
    """Returns the version of the installed PySpark."""
    return version_of(pyspark.__version__)


# Differences between versions


def renaming_file_manager(version: str) -> str:
    """Returns the name of the class that writes checkpoint files by renaming them."""
    package = _STREAMING if version_of(version) < (4, 1) else f"{_STREAMING}.checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def has_row_operators() -> bool:
    """True if stateful operators in Python can exchange rows with Spark, not only frames of pandas."""
    return installed() >= _WITH_ROW_OPERATORS


def require_row_operators() -> None:
    """Raises `UnsupportedSpark` for a Spark that cannot continue a run whose operator exchanges rows with it."""
    if not has_row_operators():
        oldest = ".".join(map(str, _WITH_ROW_OPERATORS))
        raise UnsupportedSpark(
            f"the run of this checkpoint was begun on Spark {oldest} or newer, and the installed PySpark is "
            f"{pyspark.__version__}: continue it on Spark {oldest} or newer, or begin from a savepoint"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Converts a schema of Spark to Arrow. Timestamps are in UTC."""
    if installed() < (4, 2):
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def collected(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Collects rows, with binary values as bytes: before Spark 4.1 they are bytearrays."""
    rows = iter(frame.collect())
    if installed() >= (4, 1):
        return rows
    return (tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in rows)


# Packages that a session may lack


def hadoop_aws() -> str:
    """Returns the coordinates of the package for S3 that fits the Hadoop version of the running Spark."""
    context: Any = pyspark.SparkContext._active_spark_context
    return f"org.apache.hadoop:hadoop-aws:{context._jvm.org.apache.hadoop.util.VersionInfo.getVersion()}"


def reader_package(name: str, version: str) -> str | None:
    """Returns the package with a data source for this version of Spark, and a further hint; None if none is known."""
    known = {"kafka": _kafka, "delta": _delta}
    return known[name](version) if name in known else None


def _kafka(version: str) -> str:
    """Returns the Kafka reader of a release. A patch release, and at first any new release, may lack its own."""
    major, minor = version_of(version)
    found = re.match(r"\d+\.\d+\.(\d+)", version)
    release = version if found is None else found[0]
    package = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}"
    if found is None or (found[1], minor) == ("0", 0):
        return f"{package}:{release}"
    before = f"{major}.{minor}.0" if found[1] != "0" else f"{major}.{minor - 1}.0"
    return f"{package}:{release} (if Maven Central has none of {release}, use {before})"


def _delta(version: str) -> str:
    major, minor = version_of(version)
    if (major, minor) in _DELTA_FITS:
        return f"io.delta:delta-spark_{major}.{minor}_{_SCALA}:{_DELTA}"
    return (
        f"io.delta:delta-spark_{major}.{minor}_{_SCALA} of a release after {_DELTA}, which has none for Spark "
        f"{major}.{minor}; bl.Delta reads tables without it"
    )
