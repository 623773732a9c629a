"""Operators whose state is in files of the checkpoint: a `mapInArrow` each, which is stateless for Spark.

A task reads the version of the state after the previous batch, and writes the changes to files that no other attempt
has. The heads of these files are part of its output. So the driver publishes those of the attempts that count.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from beamlike.errors import CheckpointError
from beamlike.io.files.access import Access, access_to
from beamlike.plan.manifest import Store
from beamlike.runtime.batch.envelope import ARROW, RECORDS, Envelope, in_batches, message_envelope, to_arrow
from beamlike.runtime.batch.messages import StateMessage
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.applied import applied
from beamlike.spark.query.level import Level
from beamlike.spark.query.parts import PartWriter
from beamlike.spark.query.task_activity import NO_TRACKERS, TaskTrackers, batch_of
from beamlike.spark.state.index import Head
from beamlike.spark.state.shard import Shard
from beamlike.spark.state.versions import StateVersion, data_folder, version_after


@attrs.frozen
class StateFolder:
    """The folder of the state of a run. `query` names the query, in which a version that a batch begins with does not
    change. `offsets` is the folder of Spark's offset log. Tasks use `access`, the settings of the checkpoint.
    """

    path: str
    offsets: str
    access: Access | None = None
    query: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> StateFolder | None:
        """Returns the folder for a query on a checkpoint; None if the state is in Spark's own store."""
        if manifest["store"] != Store.FILES:
            return None
        return cls(checkpoint.state, checkpoint.of_spark("offsets"), access_to(checkpoint.path))

    def before(self, batch: int) -> StateVersion:
        """Returns the version with which a batch begins."""
        return _version(self, batch - 1)

    def time_of(self, batch: int) -> int:
        """Returns the processing time (us) of a batch, which is the same in a replay."""
        name = f"{self.offsets}/{batch}"
        try:
            milliseconds = json.loads((ArrowFiles().read(name) or "").splitlines()[1])["batchTimestampMs"]
        except (IndexError, ValueError, KeyError):
            raise CheckpointError(f"Spark's {name} is not whole") from None
        return 1000 * int(milliseconds)


@lru_cache(maxsize=4)
def _version(folder: StateFolder, batch: int) -> StateVersion:
    return version_after(folder.path, batch)


@attrs.frozen
class FileOperator:
    """The operator of one level or, with one shard, of all levels, with this number in the query. It is a function for
    `mapInArrow`.

    With `ticks`, processing time passes on all shards in every batch.
    """

    levels: tuple[Level, ...]
    writer: PartWriter | None
    folder: StateFolder
    number: int
    ticks: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived: dict[int, list[Envelope]] = {}
        for rows in batches:
            columns = [rows.column(name).to_pylist() for name in ARROW.names]
            for row in zip(*columns, strict=True):
                arrived.setdefault(row[0], []).append(Envelope(*row))
        context = TaskContext.get()
        batch = batch_of(context) or 0  # a batch job restores the state of a savepoint
        if self.ticks and context is not None:
            label = self.levels[0].topology.labels[context.partitionId()]
            arrived.setdefault(label, [])
        for label in sorted(arrived):
            yield from map(to_arrow, in_batches(self._run(label, arrived.pop(label), batch)))

    def _run(self, label: int, arrived: list[Envelope], batch: int) -> Iterator[Envelope]:
        first = self.levels[0]
        number = first.topology.labels.index(label)
        head = self.folder.before(batch).heads.get((self.number, number))
        if not arrived and head is None:
            return
        shard = Shard(data_folder(self.folder.path), self.number, number)
        state = shard.load(head, batch)
        now = self.folder.time_of(batch) if self.ticks and first.stages_on(label) else None
        sent = first.run(label, arrived, state, now)
        for level in self.levels[1:]:
            sent = level.run(label, sent, state)  # it receives the time with the reports of the first
        yield from sent if self.writer is None else self.writer.write(sent, number)
        changed = state.commit()
        if changed is not None:
            yield message_envelope(label, RECORDS, RECORDS, _message(shard, changed.head, changed.unused))
            shard.keep(changed.head, state)


def _message(shard: Shard, head: Head, unused: tuple[str, ...]) -> StateMessage:
    return StateMessage(shard.operator, shard.number, head.name, head.size, unused)


def apply_file_operator(
    envelopes: DataFrame,
    levels: Sequence[Level],
    writer: PartWriter | None,
    *,
    folder: StateFolder,
    number: int,
    ticks: bool,
    small: bool = False,
    trackers: TaskTrackers = NO_TRACKERS,
    level: int = 1,
) -> DataFrame:
    """Returns the stream of envelopes after an operator with these levels. The number of the first one is `level`.

    If the input is `small`, one task reads it. With one shard, the same task then runs the operator, without a shuffle.
    """
    operator = FileOperator((*levels,), writer, folder, number, ticks)
    labels = levels[0].topology.labels
    is_one_task = small and len(labels) == 1
    shards = envelopes.coalesce(1) if is_one_task else envelopes.repartition(len(labels), "shard")
    return applied(shards, trackers.tracked(operator, level))
