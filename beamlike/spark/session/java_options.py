"""The options for a Java that is started here, beside those of the user."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home

from beamlike.spark.session import class_archive
from beamlike.spark.session.java import Java

DRIVER_MEMORY: Final = "2g"

# When a query is stopped within a batch, Spark matches a regular expression against the whole traceback. This
# overflows Java's default stack of 1 MB.
_STACK = "-Xss16m"

# Java only passes payloads on and plans batches, so little of its code runs often. By default, its optimizing
# compiler works for minutes on everything that is called some thousand times, and takes cores from the tasks.
# So it is switched off. If rows pass through Java one by one, it may still compile the loops over them, but
# not much else. The fast compiler alone would have only a fifth of the usual code cache, so its size is set.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

# Hadoop starts a process, chmod, for each file of a checkpoint. By default, Java starts a second one for each.
_LAUNCH = "jdk.lang.Process.launchMechanism"
_LAST_WITH_VFORK = 25  # later versions may warn of it, or not have it

_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_SETTINGS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_ARCHIVE = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|-XX:AOT")


def java_options(conf: SparkConf, java: Java, *, row_loops: bool) -> list[str]:
    """Returns the options for a Java that begins an application with the settings `conf`.

    `row_loops`: rows will pass through Java one by one. An option is left out if the user sets it, in any of the places
    that Spark and Java read.
    """
    given = " ".join(_given(conf))
    options = [_STACK, _LATE_SECOND_COMPILER if row_loops else _FIRST_COMPILER]
    if sys.platform == "linux" and java.major <= _LAST_WITH_VFORK and _LAUNCH not in given:
        options.append(f"-D{_LAUNCH}=VFORK")
    if not _ARCHIVE.search(given) and (archive := class_archive.find(java)) is not None:
        options += class_archive.options(java, archive)
    return options


def _given(conf: SparkConf) -> Iterator[str]:
    """Yields the texts in which the user may set options for Java."""
    yield from (conf.get(key) or "" for key in _SETTINGS)
    yield from (os.environ.get(name, "") for name in _VARIABLES)
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    for name in ("spark-defaults.conf", "spark-env.sh", "java-opts"):
        if (file := Path(folder, name)).is_file():
            yield file.read_text(errors="replace")
