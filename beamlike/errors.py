"""Errors in the declaration of pipelines and in runs, with text that several messages share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from stages.errors import SentenceFirst
from stages.errors import StepError as StepError
from windowing.columns import EVENT_TIME, PANE_COLUMNS, RESERVED_PREFIX, WINDOW_COLUMNS

COMPUTED: Final = frozenset(
    name.removeprefix(RESERVED_PREFIX) for name in (EVENT_TIME, *WINDOW_COLUMNS, *PANE_COLUMNS)
)
"""The values of a row that are not columns of the user; each is an expression such as `bl.event_time()`."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def text_of(error: object) -> str:
    """Returns the text of an error, also of a user's class whose `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__} has no text, since its __str__ fails"


def without_colours(text: str) -> str:
    """Removes terminal codes from the text of a library's error."""
    return _COLOURS.sub("", text)


class PlanError(SentenceFirst, ValueError):
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
        # Some subclasses are also a `KeyError`, which would show the text in quotes.
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
    """A name or word is not one of those that are allowed in its place.

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


class BadFile(PlanError):
    """A pipeline file cannot be read. The message begins with the file, the line and the column of the fault.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("p.yaml").write_text("pipeline: p\\ncolections: {}\\n")
        >>> bl.from_yaml("p.yaml")
        Traceback (most recent call last):
            ...
        beamlike.errors.BadFile: p.yaml:2:1: a pipeline has no 'colections'; did you mean 'collections'?
    """


class BadQuery(PlanError):
    """An SQL query cannot be read, or has no counterpart. The message names the line and the column.

    Example, with the `plays` of `bl.Collection`:
        >>> bl.sql("SELECT user, point FROM plays", plays=plays)
        Traceback (most recent call last):
            ...
        beamlike.errors.BadQuery: line 1, column 14: there is no column 'point'; did you mean 'points'?
    """


class MissingPackage(PlanError, ModuleNotFoundError):
    """A step needs a package that is not installed. Also a `ModuleNotFoundError`, whose `name` is the missing module.

    Example, where deltalake is not installed:
        >>> bl.Pipeline("p").read("plays", bl.Delta("tables/plays"))  # doctest: +SKIP
        Traceback (most recent call last):
            ...
        beamlike.errors.MissingPackage: step 'plays': bl.Delta needs deltalake: pip install 'beamlike[delta]'
    """

    def __init__(self, message: str, *, step: str | None = None, name: str | None = None) -> None:
        super().__init__(message, step=step)
        self.name = name


def missing_package(needs: str, extra: str, error: ModuleNotFoundError) -> MissingPackage:
    """Returns the error for a failed import, with the command that installs the package."""
    return MissingPackage(f"{needs}: pip install 'beamlike[{extra}]'", name=error.name)


@contextmanager
def naming_step(name: str) -> Iterator[None]:
    """Adds the name of the step to the error of a missing package."""
    try:
        yield
    except MissingPackage as error:
        if error.step is not None:
            raise
        raise MissingPackage(str(error), step=name, name=error.name) from None


class RunError(SentenceFirst, RuntimeError):
    """A run failed. The message includes the traceback of the failure in a worker."""


class TooManyDeadLetters(RunError, StepError):
    """A run has more dead letters than `max_dead_letters` allows. Without that limit: a step could use none of its
    rows.

    `step` is the name of the step with the most dead letters.

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
        message = str(self.args[0])
        return message if self.source is None else f"source {self.source!r}: {message}"


@contextmanager
def naming_source(name: str) -> Iterator[None]:
    """Adds the name of the source to errors of reading, also to errors of a storage and of a missing package.

    Errors that were raised in a user's function have a note that names it. They are not errors of reading.
    """
    try:
        with naming_step(name):
            yield
    except SourceError as error:
        error.source = error.source or name
        raise
    except (PlanError, StepError, RunError, CheckpointError):
        raise
    except Exception as error:
        if any(note.startswith("in ") for note in getattr(error, "__notes__", ())):
            raise
        if type(error) is not OSError or error.errno is not None:
            # An error of a local file, which has a class or number of its own, or of the source's own code.
            error.add_note(f"in source {name!r}")
            raise
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
        >>> _ = plays.write("out", bl.Parquet("out"))
        >>> p.run()
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
    """Another run of the same name is writing to the target of a sink."""


class CheckpointError(SentenceFirst, RuntimeError):
    """A checkpoint belongs to another plan, or cannot be used."""


class InputGone(CheckpointError):
    """The input of an earlier batch cannot be read again. `batch` is its number, `source` the name of the source.

    Example, with a file that was removed:
        >>> try:  # doctest: +SKIP
        ...     bl.replay("checkpoint", p, batch=3)
        ... except bl.errors.InputGone as error:
        ...     print(error.batch, error.source, error.reason)
        3 plays the file 'plays/3.csv' is gone
    """

    def __init__(self, batch: int, source: str, reason: str) -> None:
        super().__init__(f"the input of batch {batch} cannot be read again: source {source!r}: {reason}")
        self.batch = batch
        self.source = source
        self.reason = reason

    def __reduce__(self) -> tuple[type[InputGone], tuple[int, str, str]]:
        return InputGone, (self.batch, self.source, self.reason)


class UnknownAttribute(SentenceFirst, AttributeError):
    """An object or module has no attribute of this name. The message has what to use instead, or the nearest.

    Example:
        >>> bl.column("user")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownAttribute: module 'beamlike' has no 'column'; did you mean 'col'?
    """


class RecordsInUse(RuntimeError):
    """Another run is writing its records to the file."""


class ViewError(SentenceFirst, ValueError):
    """The records of a run cannot be read, or do not have what was requested.

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
        >>> _ = minutes.write("out", bl.Memory())
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
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
        >>> _ = minutes.write("out", bl.Memory())
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
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
        >>> _ = counts.write("out", bl.Memory())
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> history = bl.observe.History.open("plays.jsonl")
        >>> bl.observe.why(history, stage="numbers", key="one")
        Traceback (most recent call last):
            ...
        beamlike.errors.UnknownKey: ...
    """


def nearest(word: object, words: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"` for the nearest of the words in any case, or empty text if none is similar."""
    folded = {each.casefold(): each for each in words}
    given = str(word).casefold()
    likeness = {one: difflib.SequenceMatcher(None, one, given).ratio() for one in folded}
    # A word that begins with a name of at least three letters is like it, as "column" is like "col".
    likeness |= {one: max(likeness[one], 0.75) for one in folded if len(one) > 2 and given.startswith(one)}
    near = max(likeness, key=lambda one: (likeness[one], len(one)), default="")
    return f"; did you mean {folded[near]!r}?" if near and likeness[near] >= 0.6 else ""


def missing(given: object, what: str, name: str, instead: str, known: Iterable[str]) -> AttributeError:
    """Returns the error for a missing attribute `name` of `what`, with a clause that says what to use `instead`, or the
    nearest name.
    """
    return UnknownAttribute(f"{what} has no {name!r}{instead or nearest(name, known)}", name=name, obj=given)


def listed(words: Iterable[str]) -> str:
    """Returns the words separated by commas; `none` if there are none."""
    return ", ".join(words) or "none"


def unknown_column(
    name: object, known: Iterable[str], step: str | None, where: str = "", *, note: str = ""
) -> UnknownColumn:
    """Returns the error for a column that is not in `where`; it lists the columns that exist, and suggests
    the nearest.
    """
    known = list(known)
    place = f" in {where}" if where else ""
    if name in COMPUTED and not note:
        note = f"; bl.{name}() gives it, as in with_columns({name}=bl.{name}())"
    message = (
        f"there is no column {name!r}{place}; the columns are {listed(known)}{nearest(name, known)}{note}"
    )
    return UnknownColumn(message, step=step)
