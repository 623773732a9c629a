"""Small files and folders on any file system that Hadoop knows, through Spark's Java."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text, uri
from beamlike.runtime.batch import storage
from beamlike.spark.checkpoint.hadoop_sums import fits, sums, sums_of
from beamlike.system import durable
from beamlike.system.file_digests import files_below, has_content, size_and_digest
from beamlike.system.path_names import is_remote

_VERSION: Final = re.compile(r"\.\d{9}")  # after the name
_LACKING: Final = re.compile(
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\."
)
_ADVICE: Final = (
    "add hadoop-aws of the version of Spark's Hadoop, as in "
    "SparkRunner(config={'spark.jars.packages': 'org.apache.hadoop:hadoop-aws:3.5.0'})"
)


@contextmanager
def stored(what: str, name: str) -> Iterator[None]:
    """Turns storage errors of the `with` block into `CheckpointError`."""
    try:
        with storage.stored(what, name):
            yield
    except Py4JJavaError as error:
        raise _not_stored(what, name, error.java_exception.toString()) from error


def _not_stored(what: str, name: str, reason: str) -> CheckpointError:
    """The error for a path; if Hadoop lacks a library for such a path, it says where to get that."""
    if _LACKING.search(reason) is None:
        return storage.not_stored(what, name, reason)
    scheme = name.partition("://")[0]
    advice = _ADVICE if scheme in ("s3", "s3a") else "add the jars of that to Spark, with spark.jars.packages"
    return CheckpointError(f"this Spark cannot {what} {name}, as its Hadoop knows no {scheme}://: {advice}")


@attrs.frozen
class HadoopFiles:
    """Reads, writes, lists and copies files; a path has a scheme, or is of this machine.

    Raises `CheckpointError` with the reason if storage fails.
    """

    session: SparkSession

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is none. Raises `CheckpointError` if it is no text."""
        content = self.read_bytes(name)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{name} is damaged, it is no text: put it back from a copy") from None

    def read_bytes(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        with stored("read", name):
            return self._read(name)

    def _read(self, name: str) -> bytes | None:
        if not is_remote(name):
            return _content(Path(path_text(name)))
        path, files = self._find(name)
        if not files.exists(path):
            return None
        stream, jvm = files.open(path), cast(Any, self.session._jvm)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write_for_spark(self, name: str, text: str) -> None:
        """Writes a file of Spark's, with the checksums that Hadoop stores for a file on this machine."""
        self.write(name, text)
        if not is_remote(name):
            with stored("write", name):
                beside = sums_of(Path(path_text(name)))
                beside.write_bytes(sums(text.encode()))
                durable.sync(str(beside))

    def write(self, name: str, text: str, seconds: int | None = None) -> None:
        """Writes a file under a hidden name first, so that no reader sees half of it.

        An existing file is replaced. On this machine's file system that is atomic: a process that is killed, or a power
        cut, leaves the old file or the new one; elsewhere use `replace`. `seconds` since 1970 is the modification time,
        if the file system stores such times.
        """
        self.write_bytes(name, text.encode(), seconds)

    def write_bytes(self, name: str, content: bytes, seconds: int | None = None) -> None:
        """Writes a file with this content, as `write` does."""
        with stored("write", name):
            if is_remote(name):
                self._write(name, content, seconds)
            else:
                _replace(Path(path_text(name)), content, seconds)

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

    def replace(self, name: str, text: str) -> None:
        """Replaces the text that `latest` returns. A process killed meanwhile leaves the old text or the new one.

        Few stores can replace a file atomically, but all can rename a complete one: so each version has a name of its
        own, and the newest counts.
        """
        if not is_remote(name):
            self.write(name, text)
            return
        before = self._versions(name)
        newest = int(before[-1].rpartition(".")[2]) if before else 0
        self.write(f"{name}.{newest + 1:09d}", text)
        for old in [name, *before]:
            self.remove(old)

    def latest(self, name: str) -> str | None:
        """The text that `replace` or `write` stored last; None if there is none."""
        versions = self._versions(name)
        return self.read(versions[-1] if versions else name)

    def _versions(self, name: str) -> list[str]:
        """The versions, the oldest first; none on this machine."""
        folder, _, own = name.rpartition("/")
        found = self._all_names(folder) if is_remote(name) else []
        return [f"{folder}/{one}" for one in sorted(found) if _VERSION.fullmatch(one.removeprefix(own))]

    def names(self, folder: str) -> list[str]:
        """The names in a folder without hidden ones, sorted; empty if it does not exist."""
        return sorted(name for name in self._all_names(folder) if not name.startswith((".", "_")))

    def hidden(self, folder: str) -> list[str]:
        """The names of hidden files in a folder that begin with "_", sorted; empty if it does not exist."""
        return sorted(name for name in self._all_names(folder) if name.startswith("_"))

    def _all_names(self, folder: str) -> list[str]:
        with stored("read", folder):
            path, files = self._find(folder)
            if not files.exists(path):
                return []
            return [status.getPath().getName() for status in files.listStatus(path)]

    def tree(self, folder: str) -> list[str]:
        """The files below a folder, by their relative paths, without those that Hadoop adds."""
        with stored("read", folder):
            if not is_remote(folder):
                return files_below(path_text(folder))
            return sorted(self._below(folder, ""))

    def _below(self, folder: str, before: str) -> Iterator[str]:
        path, files = self._find(folder)
        for status in files.listStatus(path):
            name = status.getPath().getName()
            if status.isDirectory():
                yield from self._below(f"{folder}/{name}", f"{before}{name}/")
            elif has_content(name):
                yield f"{before}{name}"

    def size_and_digest(self, name: str) -> tuple[int, str] | None:
        """The size of a file in bytes and the SHA-256 of its content; None if there is none."""
        with stored("read", name):
            if not is_remote(name):
                return size_and_digest(path_text(name))
            path, files = self._find(name)
            if not files.exists(path):
                return None
            stream, jvm = files.open(path), cast(Any, self.session._jvm)
            try:
                digest = jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream)
            finally:
                stream.close()
            return int(files.getFileStatus(path).getLen()), str(digest)

    def make(self, folder: str) -> None:
        """Makes a folder, and those above it."""
        with stored("write", folder):
            if not is_remote(folder):
                durable.make_folder(path_text(folder))
                return
            path, files = self._find(folder)
            files.mkdirs(path)

    def copy(self, source: str, target: str) -> None:
        """Copies a folder with its content; does nothing if it does not exist. `target` must not exist."""
        with stored("write", target):
            (from_path, from_files), (to_path, to_files) = self._find(source), self._find(target)
            if not from_files.exists(from_path):
                return
            jvm: Any = self.session._jvm
            if not jvm.org.apache.hadoop.fs.FileUtil.copy(
                from_files, from_path, to_files, to_path, False, self._conf
            ):
                raise CheckpointError(f"cannot copy {source} to {target}")

    def remove(self, folder: str) -> None:
        """Removes a folder with its content."""
        with stored("write", folder):
            path, files = self._find(folder)
            files.delete(path, True)

    def sync(self, folder: str) -> None:
        """Syncs what Spark has written in a folder on this machine, since Spark does not."""
        with stored("write", folder):
            if not is_remote(folder):
                durable.sync_tree(path_text(folder))

    def _find(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self.session._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri(name))
        return path, path.getFileSystem(self._conf)

    @property
    def _conf(self) -> Any:
        """The settings of Hadoop, with those of the session."""
        return self.session._jsparkSession.sessionState().newHadoopConf()


def _content(path: Path) -> bytes | None:
    if not path.exists():
        return None
    content = path.read_bytes()
    # An empty file after a power cut is left to the caller.
    if content and not fits(path, content):
        raise CheckpointError(
            f"{path} is damaged: it is not what was written, as the checksums beside it tell; put it back from a copy, "
            "or restore a savepoint, or start anew with another checkpoint"
        )
    return content


def _replace(path: Path, content: bytes, seconds: int | None) -> None:
    durable.make_folder(str(path.parent))
    # The checksum that Hadoop wrote would not match any more; Hadoop also reads a file without one.
    sums_of(path).unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    if seconds is not None:
        os.utime(temporary, (seconds, seconds))
    durable.replace(str(temporary), str(path))
