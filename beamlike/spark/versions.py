"""The versions of Spark that pipelines run on, and the differences between them.

No other module depends on a version of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

OLDEST: Final = (3, 5)
OLDEST_CONNECT: Final = (4, 1)
"""The oldest version whose sessions of Spark Connect can be cloned."""
NEWEST: Final = (4, 3)

_WITH_STATE_STORE: Final = (4, 0)
_WITH_ARROW_FRAMES: Final = (4, 0)
_WITH_ROW_OPERATORS: Final = (4, 1)

Version = tuple[int, int]

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_DELTA: Final = "4.4.0"
_DELTA_FITS: Final = ((4, 0), (4, 1), (4, 2))
"""The newest release of Delta Lake, and the versions of Spark for which it has packages."""
_DELTA_BEFORE: Final = "3.3.3"
"""The newest release of Delta Lake for Spark 3.5, whose packages do not have the version of Spark in their name."""


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


def needed_modules() -> tuple[str, ...]:
    """Returns the modules that the installed PySpark imports in each process, and that Python may lack."""
    return ("distutils",) if installed() < (4, 0) else ()


def require_modules() -> None:
    """Raises `UnsupportedSpark` if the installed PySpark imports a module that this Python lacks."""
    for name in needed_modules():
        if find_spec(name) is None:
            raise UnsupportedSpark(
                f"PySpark {pyspark.__version__} imports {name}, which Python lacks from 3.12 on: pip install "
                "setuptools, which has it, here and on every executor, or use Python 3.11"
            )


def javas() -> tuple[int, int | None]:
    """Returns the oldest and the newest version of Java on which the installed Spark runs; None for any newer one."""
    # The Arrow of Spark 3.5 uses a constructor of Java that later versions do not have.
    return (11, 17) if installed() < (4, 0) else (17, None)


def renaming_file_manager(version: str) -> str:
    """Returns the name of the class that writes checkpoint files by renaming them."""
    package = _STREAMING if version_of(version) < (4, 1) else f"{_STREAMING}.checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def has_state_store() -> bool:
    """True if operators in Python can have their state in Spark's own store."""
    return installed() >= _WITH_STATE_STORE


def require_state_store(what: str, remedy: str) -> None:
    """Raises `UnsupportedSpark` if `what` needs Spark's own state store, and this Spark does not offer it to Python."""
    if not has_state_store():
        oldest = ".".join(map(str, _WITH_STATE_STORE))
        raise UnsupportedSpark(
            f"{what} in Spark's state store, which Python can use from Spark {oldest} on, and the installed PySpark is "
            f"{pyspark.__version__}: {remedy}"
        )


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


def frame_of(session: SparkSession, table: pa.Table) -> DataFrame:
    """Converts a table to a frame of a session. Timestamps are in UTC."""
    if installed() >= _WITH_ARROW_FRAMES:
        return session.createDataFrame(table)
    return _frame_of(session, table)


def _frame_of(classic: Any, table: pa.Table) -> DataFrame:
    """Does what `createDataFrame` does with a table from Spark 4.0 on. Spark 3.5 accepts only frames of pandas, which
    have no integers with nulls.
    """
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema

    jvm = classic._jvm
    small = pa.schema([field.with_type(_with_small_lists(field.type)) for field in table.schema])
    schema = from_arrow_schema(small)
    there = to_arrow_schema(schema)
    batches = table.cast(small).cast(there).to_batches() or [pa.RecordBatch.from_pylist([], there)]
    read = classic._sc._serialize_to_jvm(
        batches, ArrowStreamSerializer(), jvm.PythonSQLUtils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(read, schema.json(), classic._jsparkSession), classic)


def _with_small_lists(kind: pa.DataType) -> pa.DataType:
    """Returns a type with the only kind of list that Spark 3.5 knows."""
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(_with_small_lists(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_small_lists(field.type)) for field in kind])
    return kind


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
    package = f"org.apache.spark:spark-sql-kafka-0-10_{_scala((major, minor))}"
    if found is None or (found[1], minor) == ("0", 0):
        return f"{package}:{release}"
    before = f"{major}.{minor}.0" if found[1] != "0" else f"{major}.{minor - 1}.0"
    return f"{package}:{release} (if Maven Central has none of {release}, use {before})"


def _scala(version: Version) -> str:
    """Returns the version of Scala for which PySpark and most platforms build a version of Spark."""
    return "2.13" if version >= (4, 0) else "2.12"


def _delta(version: str) -> str:
    major, minor = version_of(version)
    scala = _scala((major, minor))
    if (major, minor) < _DELTA_FITS[0]:
        return f"io.delta:delta-spark_{scala}:{_DELTA_BEFORE}"
    if (major, minor) in _DELTA_FITS:
        return f"io.delta:delta-spark_{major}.{minor}_{scala}:{_DELTA}"
    return (
        f"io.delta:delta-spark_{major}.{minor}_{scala} of a release after {_DELTA}, which has none for Spark "
        f"{major}.{minor}; bl.Delta reads tables without it"
    )
