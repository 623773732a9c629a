"""What a run keeps beside Spark's checkpoint: its manifest, control files and dead letters; on any file system."""

from __future__ import annotations

import json
import uuid
from typing import Any, cast

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.paths import is_remote, uri
from beamlike.manifest import differences

_FIRST_TIME = 1_000_000_000  # of the steps of test streams, in seconds: long past


@attrs.frozen
class Checkpoint:
    """A folder, on a file system that Hadoop knows."""

    session: SparkSession
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's file system."""
        return not is_remote(self.path)

    def at(self, *names: str) -> str:
        """A path below the project's own folder in the checkpoint."""
        return "/".join([self.path.rstrip("/"), "beamlike", *names])

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the run that this checkpoint is of; None for a new one."""
        text = self._read(self.at("manifest.json"))
        return None if text is None else json.loads(text)

    def open(self, described: dict[str, Any], *, draining: bool) -> dict[str, Any]:
        """The manifest of this plan: the one that is there, if the plan fits it, or a new one.

        Raises `CheckpointError`, which names each stage and what differs.
        """
        saved = self.manifest()
        if saved is None:
            saved = {**described, "run": uuid.uuid4().hex[:8], "draining": False, "drained": False}
            self.save(saved)
        if found := differences(saved, described):
            listed = "\n  ".join(found)
            raise CheckpointError(
                f"this plan does not fit the checkpoint {self.path}:\n  {listed}\n"
                "go on with the plan that made it, or start anew with another checkpoint"
            )
        if saved["drained"]:
            raise CheckpointError(
                f"the run of the checkpoint {self.path} was drained: all its windows are closed, so whatever "
                "came now would be dropped as late; start anew with another checkpoint"
            )
        if saved["draining"] and not draining:
            raise CheckpointError(
                f"the run of the checkpoint {self.path} was stopped while it was drained; finish that with drain=True"
            )
        return saved

    def save(self, manifest: dict[str, Any]) -> None:
        self._write(self.at("manifest.json"), json.dumps(manifest, indent=1, sort_keys=True))

    def control(self) -> str:
        """The folder of control files, which exists after this."""
        directory = uri(self.at("control"))
        path, files = self._file(directory)
        files.mkdirs(path)
        return directory

    def end(self, sources: tuple[str, ...]) -> None:
        """Says that these sources are at their end: the next batch closes what only they held open."""
        self._write(f"{self.control()}/end.json", json.dumps({"end": sorted(sources)}))

    def play(self, steps: int, sources: tuple[str, ...], digest: str) -> None:
        """Has the steps of these test streams played, a batch each, and then their end.

        Spark takes control files in order of their times, so these are a second apart; where a file system keeps
        no times that are given, in order of their names. Raises `CheckpointError` where the checkpoint is of other
        streams.
        """
        # A hidden name, which Spark does not read.
        done = f"{self.control()}/_steps"
        saved = self._read(done)
        if saved not in (None, digest):
            raise CheckpointError(
                f"the test streams are not those of the checkpoint {self.path}; start anew with another checkpoint"
            )
        if saved is None:
            orders = [*({"step": step} for step in range(steps)), {"end": sorted(sources)}]
            for number, order in enumerate(orders):
                name = f"{self.control()}/{number:06d}.json"
                self._write(name, json.dumps(order))
                path, files = self._file(name)
                files.setTimes(path, 1000 * (_FIRST_TIME + number), -1)
            self._write(done, digest)

    def _file(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self.session._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri(name))
        return path, path.getFileSystem(self.session._jsc.hadoopConfiguration())

    def _read(self, name: str) -> str | None:
        path, files = self._file(name)
        if not files.exists(path):
            return None
        stream, jvm = files.open(path), cast(Any, self.session._jvm)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _write(self, name: str, text: str) -> None:
        # Under a hidden name first, so that nobody reads half a file.
        path, files = self._file(name)
        temporary, _ = self._file(f"{name.rpartition('/')[0]}/.{path.getName()}.tmp")
        stream = files.create(temporary, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        if files.exists(path):
            files.delete(path, False)
        if not files.rename(temporary, path):
            raise CheckpointError(f"cannot write {name}")
