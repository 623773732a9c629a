"""Access to checkpoints in S3 by pyarrow, with the settings that a session has for Hadoop."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, cast

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.access import forget, use
from beamlike.io.files.paths import file_system
from beamlike.runtime.batch.storage import not_stored
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.hadoop import stored
from beamlike.spark.checkpoint.s3_settings import NotFollowed, S3Settings
from beamlike.spark.java_errors import Py4JError, Py4JJavaError
from beamlike.spark.session.kinds import is_connect
from beamlike.system.secrets import without_secrets

_S3: Final = re.compile(r"(?i)s3a?://(?P<bucket>[^/]+)")
_CLIENT: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_KEYS: Final = "security.credential.provider.path"
_PLACES: Final = {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}


def follow(session: SparkSession | None, path: str) -> str | None:
    """Uses the settings of a classic session in this process, if the path is in S3 and pyarrow can follow them. Tasks
    use them when they receive a copy (`Access`).

    Returns None, or the reason why pyarrow cannot access the path: a setting, or the error of the first request.
    """
    forget(path)
    found = _S3.match(path)
    if session is None or is_connect(session) or found is None:
        return None
    bucket = found["bucket"]
    with stored("read", path):
        jvm: Any = session._jvm
        conf = _conf(session, bucket)
        client = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(conf).getClass().getName()
        if client != _CLIENT:  # a platform's own, which has other settings
            return f"has no equivalent for fs.{path.partition('://')[0]}.impl ({client})"

        def secret(name: str) -> str | None:
            # A file of keys (JCEKS) may have it instead of the settings.
            value = conf.getPassword(name)
            return None if value is None else str(jvm.java.lang.String.copyValueOf(value))

        try:
            options = S3Settings(bucket, conf.get, secret).options()
        except NotFollowed as error:
            return f"has no equivalent for {error}"
    return _reached(path, options, bucket)


def _reached(path: str, options: tuple[tuple[str, Any], ...], bucket: str) -> str | None:
    """Uses the settings if pyarrow reaches the path with them. A store may need more, such as a certificate that only
    Java has.
    """
    try:
        use(path, _with_region(options, bucket))
        system, base = file_system(path)
        system.get_file_info(base)
    except (OSError, ValueError) as error:
        forget(path)
        return f"cannot access it: {without_secrets(str(error))}"
    return None


def require_followed(session: SparkSession | None, path: str) -> None:
    """Raises `CheckpointError` if pyarrow cannot access a checkpoint that has its state in files."""
    if (reason := follow(session, path)) is not None:
        raise CheckpointError(
            f"the checkpoint {path} cannot have its state in files: tasks write it with pyarrow, which {reason}; "
            "change that, or have the state of a new checkpoint in Spark's state store, with state='spark'"
        )


@attrs.frozen
class S3Files(ArrowFiles):
    """The files of a run's checkpoint in S3, with few requests: an object is written with one, and any number of
    objects are removed with one.
    """

    folder: str
    session: SparkSession
    _places: dict[str, str] = attrs.field(factory=dict, init=False)
    """The object in which the text of a name is replaced."""

    def replace(self, name: str, text: str) -> None:
        # S3 replaces an object atomically. If an earlier run has made versions, the newest one counts.
        self.write(self._places.get(name) or self._newest(name), text)

    def _newest(self, name: str) -> str:
        found = self._places[name] = super()._newest(name)
        return found

    def remove_files(self, names: Iterable[str]) -> None:
        if not (left := [*names]):
            return
        with stored("write", self.folder):
            if self._deletion is None:
                super().remove_files(left)
                return
            jvm: Any = self.session._jvm
            size = self._deletion.pageSize()
            for first in range(0, len(left), size):
                paths = jvm.java.util.ArrayList()
                for name in left[first : first + size]:
                    paths.add(jvm.org.apache.hadoop.fs.Path(name))
                for failed in self._deletion.bulkDelete(paths):
                    raise not_stored("remove", failed.getKey(), failed.getValue())

    @cached_property
    def _deletion(self) -> Any:
        """Hadoop's deletion of many files; None before Hadoop 3.4.1. pyarrow makes four requests for an object: it
        looks for it twice, removes it, and creates a marker for its folder.
        """
        path = cast(Any, self.session)._jvm.org.apache.hadoop.fs.Path(self.folder)
        conf = cast(Any, self.session)._jsparkSession.sessionState().newHadoopConf()
        try:
            return path.getFileSystem(conf).createBulkDelete(path)
        except Py4JJavaError:
            raise
        except Py4JError:  # there is no such method
            return None


def _conf(session: SparkSession, bucket: str) -> Any:
    """Returns the settings of Hadoop, including those of the session, and the files of keys for a bucket."""
    conf = cast(Any, session)._jsparkSession.sessionState().newHadoopConf()
    of_bucket = conf.get(f"fs.s3a.bucket.{bucket}.{_KEYS}")
    if keys := ",".join(filter(None, [of_bucket, conf.get(f"fs.s3a.{_KEYS}"), conf.get(f"hadoop.{_KEYS}")])):
        conf.set(f"hadoop.{_KEYS}", keys)
    return conf


def _with_region(options: tuple[tuple[str, Any], ...], bucket: str) -> tuple[tuple[str, Any], ...]:
    """Adds the region of a bucket of Amazon's, which pyarrow needs to know and Hadoop finds by itself."""
    known = {"region", "endpoint_override"} & dict(options).keys() or _PLACES & os.environ.keys()
    if known or not options:
        return options
    from pyarrow import fs

    return tuple(sorted({**dict(options), "region": fs.resolve_s3_region(bucket)}.items()))
