"""Opens readers of Spark. If the session lacks a data source, the error names the package that has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import PlanError
from beamlike.spark.java_errors import Py4JJavaError
from beamlike.spark.versions import reader_package

_LACKING: Final = re.compile(r"[Ff]ailed to find (?:the )?data source: (\w+)")


def opened(reader: Callable[[SparkSession], DataFrame], session: SparkSession) -> DataFrame:
    """Returns the rows of a reader. Raises `PlanError` if the session lacks its data source."""
    try:
        return reader(session)
    except (AnalysisException, Py4JJavaError) as error:
        found = _LACKING.search(str(error))
        package = None if found is None else reader_package(found[1], session.version)
        if found is None or package is None:
            raise
        raise PlanError(
            f"this Spark has no data source {found[1]!r}; its package is {package}; add it with "
            "SparkRunner(config={'spark.jars.packages': '...'}) or beamlike run --conf spark.jars.packages=..."
        ) from error
