"""Errors of pipelines when they are declared, and of runs, with the text that their messages share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from stages.errors import StepError as StepError
from windowing.columns import EVENT_TIME, PANE_COLUMNS, RESERVED_PREFIX, WINDOW_COLUMNS

COMPUTED: Final = frozenset(
    name.removeprefix(RESERVED_PREFIX) for name in (EVENT_TIME, *WINDOW_COLUMNS, *PANE_COLUMNS)
)
"""What rows have beside the user's columns: a function gives each as an expression."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Returns the text of a library's error without terminal codes."""
    return _COLOURS.sub("", text)


class PlanError(ValueError):
    """A pipeline cannot be run as it is declared. `step` is the name of the invalid step, if there is one.

    The class is a subclass of `ValueError`.

    Example:
        >>> bl.Pipeline("p").run()
        Traceback (most recent call last):
            ...
        beamlike.errors.PlanError: pipeline 'p' writes to no sink; call collection.write('name', sink)
    """

    def __init__(self, message: str, *, step: str | None = None) -> None:
        super().__init__(message if step is None else f"step {step!r}: {message}")
        self.step = step

    def __str__(self) -> str:
        # KeyError, a base of some kinds, would show the text in quotes.
        return str(self.args[0])


class UnknownColumn(PlanError, KeyError):
    """A step reads a column that its input does not have.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.select("point")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownColumn: step 'plays.select': there is no column 'point'; the columns are ...
    """


class UnknownName(PlanError, KeyError):
    """A name or word has no meaning in its place.

    Example:
        >>> bl.Pipeline("p", on_error="stop")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownName: pipeline 'p': on_error must be 'dead_letters' or 'fail', not 'stop'
    """


class WrongType(PlanError, TypeError):
    """A value or a column has a type that cannot be used in its place. Also a `TypeError`.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.filter(bl.col("points"))
        Traceback (most recent call last):
            ...
        beamlike.errors.WrongType: step 'plays.filter': a filter must be Boolean, but points is Int64
    """


class DuplicateName(PlanError):
    """Two steps, or two columns of one step, have the same name.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.filter(bl.col("points") > 3, name="plays")
        Traceback (most recent call last):
            ...
        beamlike.errors.DuplicateName: step 'plays': the name is taken in pipeline 'scores', ...
    """


class ReservedName(PlanError):
    """A column begins with two underscores, which is reserved for the engine's own columns.

    Example:
        >>> bl.Pipeline("p").read("rows", bl.Rows([{"__points": 3}]))
        Traceback (most recent call last):
            ...
        beamlike.errors.ReservedName: ...
    """


class UnlikeCollections(PlanError):
    """Flattened collections have different windowings or different columns.

    Example, with the `plays` of `bl.Collection`:
        >>> bl.flatten(plays, plays.drop("points"))
        Traceback (most recent call last):
            ...
        beamlike.errors.UnlikeCollections: ...
    """


class UnboundedGrouping(PlanError):
    """A grouping would wait for the end of an input that has no end.

    Example:
        >>> stream = bl.TestStream({"at": int})
        >>> endless = bl.Pipeline("p").read("endless", stream, timestamp="at", timestamp_unit="s")
        >>> endless.aggregate(n=bl.count())
        Traceback (most recent call last):
            ...
        beamlike.errors.UnboundedGrouping: ...
    """


class MissingFiles(PlanError, FileNotFoundError):
    """The path or glob of a source names nothing. Also a `FileNotFoundError`.

    Example:
        >>> bl.Pipeline("p").read("plays", bl.CSV("nowhere/*.csv"))
        Traceback (most recent call last):
            ...
        beamlike.errors.MissingFiles: ...
    """


class RunError(RuntimeError):
    """A run failed. The message includes the traceback of the failure in a worker."""


class TooManyDeadLetters(RunError, StepError):
    """A run has more dead letters than `max_dead_letters`, or without that limit a step could use none of its rows.

    `step` is the name of the step with most of them.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.map(lambda row: {"share": 1 / 0}, schema={"share": float}).collect()
        Traceback (most recent call last):
            ...
        beamlike.errors.TooManyDeadLetters: ...
    """


class SourceError(RunError):
    """A source could not be read. With a checkpoint, the next run continues from the same position.

    `source` is the name of the source, if it is known.
    """

    source: str | None = None

    def __str__(self) -> str:
        told = str(self.args[0])
        return told if self.source is None else f"source {self.source!r}: {told}"


@contextmanager
def naming_source(name: str) -> Iterator[None]:
    """Adds the name of the source to errors of reading, also to those of a storage."""
    try:
        yield
    except SourceError as error:
        error.source = error.source or name
        raise
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise  # of this machine's files, whose kinds have names
        failed = SourceError(f"it cannot be read: {without_colours(str(error)).strip()}")
        failed.source = name
        raise failed from error


class DataLoss(SourceError):
    """A source no longer has the input that a run must read next, for example after the retention time of a topic."""


class SinkError(RunError):
    """A sink could not write a batch. With a checkpoint, the next run repeats the batch.

    `sink` is the name of the sink.

    Example, with the `plays` of `bl.Collection`:
        >>> from pathlib import Path
        >>> Path("out").write_text("in the way")
        10
        >>> plays.write("out", bl.Parquet("out")) and p.run()
        Traceback (most recent call last):
            ...
        beamlike.errors.SinkError: sink 'out': ...
    """

    def __init__(self, sink: str, message: str) -> None:
        super().__init__(sink, message)
        self.sink = sink

    def __str__(self) -> str:
        return f"sink {self.args[0]!r}: {self.args[1]}"


class SinkInUse(SinkError):
    """Another run of the same name is writing to the place of a sink."""


class CheckpointError(RuntimeError):
    """A checkpoint belongs to another plan, or cannot be used."""


class RecordsInUse(RuntimeError):
    """Another run is writing its records to the file."""


class ViewError(ValueError):
    """The records of a run cannot be read, or lack what was requested.

    Example:
        >>> from pathlib import Path
        >>> Path("notes.txt").write_text("no records")
        10
        >>> bl.observe.History.open("notes.txt")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnreadableRun: 'notes.txt' does not have the records of a run: ...
    """


class UnreadableRun(ViewError):
    """A file does not contain the records of a run.

    Example:
        >>> from pathlib import Path
        >>> Path("notes.txt").write_text("no records")
        10
        >>> bl.observe.History.open("notes.txt")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnreadableRun: 'notes.txt' does not have the records of a run: ...
    """


class UnknownStage(ViewError):
    """A run has no stage of this name. The message lists its stages, and suggests the nearest.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).group_by("user", name="minutes").aggregate(n=bl.count())
        >>> run = minutes.write("out", bl.Memory()) and p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> history = bl.observe.History.open("plays.jsonl")
        >>> bl.observe.why(history, stage="minute")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownStage: ...
    """


class UnknownWindow(ViewError):
    """A text is not a window of a stage.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m")).group_by("user", name="minutes").aggregate(n=bl.count())
        >>> run = minutes.write("out", bl.Memory()) and p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> history = bl.observe.History.open("plays.jsonl")
        >>> bl.observe.why(history, stage="minutes", window="noon")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownWindow: ...
    """


class UnknownKey(ViewError):
    """A text is not a key of a stage, given the types of its key columns.

    Example, with the `plays` of `bl.Collection`:
        >>> counts = plays.window_into(bl.FixedWindows("1m")).group_by("points", name="numbers").aggregate(n=bl.count())
        >>> run = counts.write("out", bl.Memory()) and p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> history = bl.observe.History.open("plays.jsonl")
        >>> bl.observe.why(history, stage="numbers", key="one")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownKey: ...
    """


def nearest(word: object, words: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"`, or empty text if no word is similar."""
    near = difflib.get_close_matches(str(word), list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(words: Iterable[str]) -> str:
    """Returns the words separated by commas; `none` if there are none."""
    return ", ".join(words) or "none"


def unknown_column(
    name: object, known: Iterable[str], step: str | None, where: str = "", *, note: str = ""
) -> UnknownColumn:
    """Returns the error for a column that is not in `where`, with the existing columns and the nearest."""
    known = list(known)
    place = f" in {where}" if where else ""
    if name in COMPUTED and not note:
        note = f"; bl.{name}() gives it, as in with_columns({name}=bl.{name}())"
    message = (
        f"there is no column {name!r}{place}; the columns are {listed(known)}{nearest(name, known)}{note}"
    )
    return UnknownColumn(message, step=step)
