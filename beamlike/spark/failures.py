"""Converts failures of a query to errors with their cause and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from pyspark.errors import PySparkException

from beamlike.errors import CheckpointError, DataLoss, RunError, SinkError, SinkInUse, SourceError
from beamlike.io.sources import ReadBySpark
from beamlike.plan.model import Plan
from beamlike.records.failure import traceback_text
from beamlike.runtime.batch.storage import not_stored
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.hadoop_sums import not_fitting
from beamlike.spark.java_errors import Py4JJavaError
from beamlike.spark.query.build import python_reason
from beamlike.spark.session.connect import forbidden, unknown_scheme
from beamlike.system.seals import NotAsWritten
from beamlike.system.secrets import without_secrets

_OURS: Final = re.compile(
    r"^beamlike\.errors\.(?P<kind>CheckpointError|SourceError|DataLoss|SinkError|SinkInUse): "
    r"(?:(?:source|sink) '(?P<name>[^\n]*?)': )?(?P<reason>.*)",
    re.MULTILINE | re.DOTALL,
)
_SEAL: Final = re.compile(r"^beamlike\.system\.seals\.NotAsWritten: (.*)", re.MULTILINE)
_FRAME_OF_JAVA: Final = re.compile(r"\s+(?:at [\w.$/@]+\(|\.\.\. \d+ more)")
_STOPPED: Final = re.compile(
    "SparkContext was shut down|stopped SparkContext|SparkContext has been shutdown|SparkContext has been stopped"
)
_LINES: Final = 20  # the greatest number of lines of Spark's own message in ours
_NAMED: Final = 3  # the greatest number of damaged files in a message
_FULL: Final = re.compile(r".*(?:No space left on device|Disk quota exceeded).*")
_REFUSED: Final = re.compile(r".*(?:Read-only file system|Permission denied).*")
_DAMAGE: Final = re.compile(
    r"\[(?:CANNOT_LOAD_STATE_STORE|STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP|STDS_\w+"
    r"|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED)"
    r"(?:\.\w+)?\] ([^\n]*)|(Checksum error: [^\n]*)|(File \S+/state/\S+ does not exist)|(batch \d+ doesn't exist)"
)
_LOST: Final = re.compile(r"Some data may have been lost.*?Reason: ([^\n]*?)\s*\n", re.DOTALL)
_KAFKA: Final = re.compile(r"org\.apache\.kafka\.common\.(?:[a-z]+\.)*(\w+: [^\n]*)")
_CALL: Final = re.compile(r"^An error occurred while calling [^\n]*\n: ")
_CAUSE: Final = re.compile(r"^Caused by: (?!java\.lang\.NullPointer)(.*)", re.MULTILINE)


def failure(message: str, checkpoint: Checkpoint, plan: Plan) -> Exception:
    """Returns the error for Spark's message about a failed query. Spark's own trace is after our sentence, folded."""
    error = _failure(message, checkpoint) or RunError(from_spark(message))
    read = [name for name, source in plan.sources.items() if isinstance(source.source, ReadBySpark)]
    if isinstance(error, SourceError) and error.source is None and len(read) == 1:
        error.source = read[0]
    return error


def _failure(message: str, checkpoint: Checkpoint) -> Exception | None:
    if reason := python_reason(message):
        if found := _OURS.search(reason):
            return _of_ours(found)
        if found := _SEAL.search(reason):
            return checkpoint.damaged(found[1].strip())
        return RunError(f"the run failed in a Python function: {traceback_text(reason)}")
    said = message.partition("=== Streaming Query ===")[0]
    if found := _LOST.search(said):
        return DataLoss(
            f"the topic no longer retains what the run is to read next: {found[1]}; on_data_loss='skip' continues "
            "without these messages"
        )
    if reason := _not_stored(said, checkpoint.path):
        return not_stored("write", checkpoint.path, reason.strip().removeprefix("Caused by: "))
    if complaints := _KAFKA.findall(said):
        reason = complaints[-1].partition(" SQLSTATE")[0].strip(" .")
        return SourceError(f"Spark's reader of Kafka failed: {reason}")
    return _damage(said, checkpoint)


def _damage(said: str, checkpoint: Checkpoint) -> CheckpointError | None:
    """Returns the error if the message says that Spark cannot read the checkpoint, else None."""
    files = [*islice(not_fitting(checkpoint.path), _NAMED)] if checkpoint.is_local else []
    if found := _DAMAGE.search(said):
        reason = f"Spark cannot read its logs or state ({_reason(said, found)})"
        return checkpoint.damaged("; ".join([*files, reason]))
    if files:
        return checkpoint.damaged(f"{'; '.join(files)} (Spark says: {said.strip().splitlines()[0]})")
    return None


def from_spark(message: str) -> str:
    """Returns a sentence with the cause in a message of Spark, and the message without the frames of Java."""
    said = message.partition("=== Streaming Query ===")[0].strip()
    # What Java told the Python function that called it is the cause; the frames of that function are ours.
    said = _CALL.sub("", said.rpartition("py4j.protocol.Py4JJavaError: ")[2])
    if _STOPPED.search(said):
        cause = "it was stopped, or its driver ended; the next run on the checkpoint repeats the batch in progress"
    elif "Python worker exited" in said:
        cause = (
            "a Python worker ended in the middle of a task: it was killed, crashed, or had too little memory"
        )
    else:
        cause = (_CAUSE.findall(said) or said.splitlines() or ["it said nothing"])[
            -1 if _CAUSE.search(said) else 0
        ]
    lines = [line for line in said.splitlines() if not _FRAME_OF_JAVA.match(line)]
    left_out = len(said.splitlines()) - len(lines[:_LINES])
    told = [*lines[:_LINES], *([f"... {left_out:,} more lines"] if left_out else [])]
    return without_secrets("\n".join([f"Spark failed: {cause.strip()}", *(f"  {line}" for line in told)]))


@contextmanager
def understood(checkpoint: Checkpoint) -> Iterator[None]:
    """Raises `CheckpointError` if the `with` block fails because the checkpoint is damaged, or because Spark or Java
    cannot read it or does not know its storage, and `RunError` if a platform forbids the query, or for any other error
    of Java.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        found = _damage(str(error), checkpoint) or forbidden(error) or unknown_scheme(error, checkpoint.path)
        if found:
            raise found from error
        if isinstance(error, Py4JJavaError):
            raise RunError(from_spark(str(error))) from None
        raise
    except NotAsWritten as error:
        raise checkpoint.damaged(str(error)) from None


def _of_ours(found: re.Match[str]) -> Exception:
    """Returns the error that a worker raised, with the class that it has in process."""
    kind, name, reason = found["kind"], found["name"], found["reason"].strip()
    if kind in ("SinkError", "SinkInUse"):
        return (SinkInUse if kind == "SinkInUse" else SinkError)(name, reason)
    if kind == "CheckpointError":
        return CheckpointError(reason if name is None else found[0].partition(": ")[2].strip())
    failed = (DataLoss if kind == "DataLoss" else SourceError)(reason)
    failed.source = name
    return failed


def _not_stored(said: str, checkpoint: str) -> str | None:
    """Returns the line about the checkpoint's storage, else None. An error about a full disk may name no file, so it
    always counts.
    """
    lines = [found[0] for found in _REFUSED.finditer(said) if checkpoint in found[0]]
    if "beamlike.errors.SinkError" not in said:
        lines += [found[0] for found in _FULL.finditer(said)]
    return lines[-1] if lines else None


def _reason(said: str, found: re.Match[str]) -> str:
    """Returns the first reason in Spark's message and, if there is one, the innermost cause."""
    first = next(filter(None, found.groups())).partition(" SQLSTATE")[0].strip(" .")
    return "; ".join([first, *_CAUSE.findall(said)[-1:]])
