"""The state of a run before a batch: from its checkpoint, a savepoint, or none before the first batch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute, path_text
from beamlike.local.savepoint import state_of
from beamlike.plan.manifest import Runner, Store
from beamlike.plan.model import Plan
from beamlike.runtime.loop.checkpoint import LocalCheckpoint, LocalFiles
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.runtime.run.unfinished import FACTS
from beamlike.runtime.savepoint.savepoint import Savepoint, load
from beamlike.runtime.savepoint.trust import require_trusted
from stages.state.store import DictStore

FEW: Final = 10
"""The number of batches up to which a run on Spark is played from its first batch, which takes less time than to start
Spark.
"""


@attrs.frozen
class SparkOptions:
    """Spark for the state of a run on Spark, as for `bl.savepoint.save`."""

    session: Any = None
    master: str | None = None
    config: Mapping[str, str] | None = None


@attrs.frozen
class Savepoints:
    """Savepoints, or folders with some, from which a replay may begin. If `trust`, pickled objects are loaded."""

    folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ()
    trust: bool = False

    def starts(self, run: RecordedRun) -> Iterator[Start]:
        """Yields the starts from the savepoints of the run."""
        given = [self.folders] if isinstance(self.folders, str | os.PathLike) else self.folders
        for folder in (one for path in given for one in _folders(path_text(path))):
            if (start := _of(run, folder, self.trust)) is not None:
                yield start


@attrs.frozen
class Start:
    """A state from which a replay can begin: that after batch `after`, -1 for none. `origin` describes it."""

    after: int
    origin: str
    load: Callable[[Plan], DictStore] = attrs.field(eq=False, repr=False)


def nearest_start(
    run: RecordedRun, number: int, savepoints: Savepoints, spark: SparkOptions, *, few: int = FEW
) -> Start:
    """Returns the latest known state before a batch. A run on Spark is played from its first batch if there are few.

    Raises `CheckpointError` if there is none, with what would help.
    """
    starts = [*_first(run, number), *savepoints.starts(run), *_stored(run, number, spark, few)]
    found = [start for start in starts if start.after < number]
    if not found:
        raise CheckpointError(
            f"the state before batch {number} of {run.path} is not known any more: {_reach(run, starts)}; give "
            "savepoint= one that was taken before it"
        )
    start = max(found, key=lambda start: start.after)
    missing = [between for between in range(start.after + 1, number) if between not in run.batches]
    if missing:
        raise CheckpointError(
            f"batch {number} of {run.path} cannot be played from {start.origin}, as batch {missing[0]} in between is "
            f"gone: the checkpoint has the input of batches {run.first} to {run.last}; give savepoint= a later one"
        )
    return start


def _reach(run: RecordedRun, starts: list[Start]) -> str:
    known = min((start.after for start in starts), default=None)
    if known is None:
        return "the checkpoint has no state before its last batch"
    return f"the earliest known state is that after batch {known}"


def _first(run: RecordedRun, number: int) -> list[Start]:
    if run.manifest.get("restored") or run.first != 0:
        return []
    return [Start(-1, "the first batch", lambda plan: DictStore())]


def _folders(path: str) -> list[str]:
    """Returns the savepoints in a folder, which may be one itself. Raises `CheckpointError` if there are none."""
    folder = absolute(path)
    if os.path.isfile(os.path.join(folder, FACTS)):
        return [folder]
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [
        os.path.join(folder, name) for name in names if os.path.isfile(os.path.join(folder, name, FACTS))
    ]
    if not found:
        raise CheckpointError(
            f"there is no savepoint in {folder}: neither it nor a folder in it has a {FACTS}"
        )
    return found


def _of(run: RecordedRun, folder: str, trust: bool) -> Start | None:
    """Returns the start from a savepoint; None if it is one of another run."""
    saved = load(folder, LocalFiles())
    restored = run.manifest.get("after") if run.manifest.get("restored") else None
    if restored == saved.after:
        after = 0
    elif saved.manifest["run"] == run.manifest["run"]:
        after = saved.batch
    else:
        return None
    what = f"the savepoint {folder}"

    def loaded(plan: Plan) -> DictStore:
        require_trusted(plan, what, trust)
        return state_of(saved, plan, LocalFiles())

    return Start(after, what, loaded)


def _stored(run: RecordedRun, number: int, spark: SparkOptions, few: int) -> list[Start]:
    if run.manifest["runner"] == Runner.LOCAL:
        return _in_journal(run, number)
    in_files = run.manifest["store"] == Store.FILES
    least = 0 if in_files else few  # state in files is read without Spark
    if run.first == 0 and number <= least and not run.manifest.get("restored"):
        return []
    if number - 1 not in run.batches and number - 1 != run.first - 1:
        return []
    where = "the state in files" if in_files else "the state store of Spark"
    return [Start(number - 1, where, lambda plan: _of_spark(run, number - 1, plan, spark))]


def _in_journal(run: RecordedRun, number: int) -> list[Start]:
    checkpoint = LocalCheckpoint(run.path)
    with checkpoint.lock("a replay"), checkpoint.journal_to_read() as journal:
        after = min(max(number, journal.reach()), run.done + 1) - 1
        values = journal.values_before(after + 1) if after < number else {}
    return [Start(after, "the state in the journal", lambda plan: DictStore(dict(values)))]


def _of_spark(run: RecordedRun, batch: int, plan: Plan, spark: SparkOptions) -> DictStore:
    from beamlike.spark.savepoint.savepoint import state_after

    with tempfile.TemporaryDirectory(prefix="beamlike-replay-") as scratch:
        saved: Savepoint = state_after(
            run.path,
            batch,
            os.path.join(scratch, "state"),
            session=spark.session,
            master=spark.master,
            config=spark.config,
        )
        # Only listed files are read, and this state has no facts that list them.
        return state_of(saved.listing(LocalFiles()), plan, LocalFiles())
