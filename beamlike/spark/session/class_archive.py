"""The archive of Java's classes, from which Java loads the classes of Spark in a fraction of the time.

`beamlike java --archive` makes it, once for each Java and Spark. Without it, or if it does not fit, Java loads the
classes from their jars.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from beamlike.errors import RunError
from beamlike.spark.session.java import Java, cache
from beamlike.system import durable
from beamlike.system.texts import shell_word

_FIRST_WITH_AOT: Final = 24
"""The first version of Java that logs about archives under the name "aot"."""


class NoArchive(RunError):
    """Raised if Java has written no archive. The message says what Java needs for it."""


def find(java: Java) -> Path | None:
    """Returns the archive for a Java and the installed Spark; None if it was not made, or is incomplete.

    Java would crash on an incomplete file, so its size is in its name.
    """
    place, state = _names(java)
    for path in cache().glob(f"{place}-{state}-*.jsa"):
        with suppress(FileNotFoundError):  # a new one replaces it
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
    return None


def options(java: Java, archive: Path) -> list[str]:
    """Returns the options to use an archive, and to be quiet about one that does not fit."""
    logs = ["-Xlog:cds*=off", *(["-Xlog:aot*=off"] if java.major >= _FIRST_WITH_AOT else [])]
    return [shell_word(f"-XX:SharedArchiveFile={archive}"), *logs]


@contextmanager
def making(java: Java) -> Iterator[list[str]]:
    """Makes the archive. The `with` block must start Java with these options, use it, and wait for its end.

    Java writes its loaded classes when it ends, which takes some twenty seconds of CPU time. Archives of an earlier
    state of the same Java and Spark are removed. Raises `NoArchive`.
    """
    place, state = _names(java)
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{place}-{os.getpid()}.draft"
    try:
        at_exit = shell_word(f"-XX:ArchiveClassesAtExit={draft}")
        yield [at_exit, "-Xlog:disable", "-Xlog:all=error:stderr"]
        if not draft.is_file():
            raise NoArchive(
                f"{java} has written no archive: it needs the archive of its own classes (lib/server/classes.jsa, "
                "which `java -Xshare:dump` makes), and a classpath without folders, such as Spark's conf"
            )
        durable.sync(str(draft))
        made = folder / f"{place}-{state}-{draft.stat().st_size}.jsa"
        draft.replace(made)
    finally:
        draft.unlink(missing_ok=True)
    for old in folder.glob(f"{place}-*.jsa"):
        if old != made:
            old.unlink(missing_ok=True)


def _names(java: Java) -> tuple[str, str]:
    """Returns names for the place and for the state of a Java and of Spark's jars."""
    jars = Path(_find_spark_home(), "jars")
    stats = sorted((one.name, one.stat()) for one in os.scandir(jars)) if jars.is_dir() else []
    state = [java.version, *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)]
    return f"classes-{_digest(str(java.home), str(jars))}", _digest(*state)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
