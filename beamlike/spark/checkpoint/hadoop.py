"""Small files and folders on any file system that Hadoop supports, accessed through Spark's Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import uri
from beamlike.runtime.batch import storage
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.java_errors import UNKNOWN_SCHEME, Py4JJavaError
from beamlike.spark.versions import hadoop_aws
from beamlike.system.file_digests import has_content


@contextmanager
def stored(what: str, name: str) -> Iterator[None]:
    """Converts storage errors of the `with` block to `CheckpointError`."""
    try:
        with storage.stored(what, name):
            yield
    except Py4JJavaError as error:
        raise _not_stored(what, name, error.java_exception.toString()) from error


def _not_stored(what: str, name: str, reason: str) -> CheckpointError:
    """Returns the error for a path. If Hadoop lacks a library for its scheme, the message says where to get it."""
    if UNKNOWN_SCHEME.search(reason) is None:
        return storage.not_stored(what, name, reason)
    scheme = name.partition("://")[0]
    advice = "add the jars of that to Spark, with spark.jars.packages"
    if scheme in ("s3", "s3a"):
        advice = (
            "add hadoop-aws of the version of Spark's Hadoop, as in "
            f"SparkRunner(config={{'spark.jars.packages': '{hadoop_aws()}'}})"
        )
    return CheckpointError(f"this Spark cannot {what} {name}, as its Hadoop knows no {scheme}://: {advice}")


@attrs.frozen
class HadoopFiles(StoredFiles):
    """Access to files on any file system that Hadoop supports."""

    session: SparkSession

    def _storing(self, what: str, name: str) -> AbstractContextManager[None]:
        return stored(what, name)

    def _read(self, name: str) -> bytes | None:
        path, files = self._find(name)
        if not files.exists(path):
            return None
        stream, jvm = files.open(path), cast(Any, self.session._jvm)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _write(self, name: str, content: bytes, seconds: int | None) -> None:
        path, files = self._find(name)
        temporary, _ = self._find(f"{name.rpartition('/')[0]}/.{path.getName()}.tmp")
        stream = files.create(temporary, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        if files.exists(path):
            files.delete(path, False)
        if not files.rename(temporary, path):
            raise CheckpointError(f"cannot write {name}")
        if seconds is not None:
            files.setTimes(path, 1000 * seconds, -1)

    def _names(self, folder: str) -> list[str]:
        path, files = self._find(folder)
        if not files.exists(path):
            return []
        return [status.getPath().getName() for status in files.listStatus(path)]

    def _below(self, folder: str, before: str) -> Iterator[str]:
        path, files = self._find(folder)
        for status in files.listStatus(path):
            name = status.getPath().getName()
            if status.isDirectory():
                yield from self._below(f"{folder}/{name}", f"{before}{name}/")
            elif has_content(name):
                yield f"{before}{name}"

    def _size_and_digest(self, name: str) -> tuple[int, str] | None:
        path, files = self._find(name)
        if not files.exists(path):
            return None
        stream, jvm = files.open(path), cast(Any, self.session._jvm)
        try:
            digest = jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream)
        finally:
            stream.close()
        return int(files.getFileStatus(path).getLen()), str(digest)

    def _make(self, folder: str) -> None:
        path, files = self._find(folder)
        files.mkdirs(path)

    def _copy(self, source: str, target: str) -> None:
        (from_path, from_files), (to_path, to_files) = self._find(source), self._find(target)
        if not from_files.exists(from_path):
            return
        jvm: Any = self.session._jvm
        if not jvm.org.apache.hadoop.fs.FileUtil.copy(
            from_files, from_path, to_files, to_path, False, self._conf
        ):
            raise CheckpointError(f"cannot copy {source} to {target}")

    def _remove(self, folder: str) -> None:
        path, files = self._find(folder)
        files.delete(path, True)

    def _find(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self.session._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri(name))
        return path, path.getFileSystem(self._conf)

    @property
    def _conf(self) -> Any:
        """The settings of Hadoop, including those of the session."""
        return self.session._jsparkSession.sessionState().newHadoopConf()
