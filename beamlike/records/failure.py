"""Why a run failed: the error, the part of the pipeline and the row, and the line of the user's code."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs

from beamlike.errors import text_of, without_colours
from beamlike.rows.dead_letters import ROW_NOTE
from beamlike.system.activity import CurrentBatch
from beamlike.system.secrets import without_secrets
from stages.facts import SPARSE

_MOST: Final = 1000
"""The greatest number of characters of the text of an error."""

_FRAME: Final = re.compile(r'^ *File "(.+?)", line (\d+), in (.+)\n(?! *File ")(?: +(.*)\n)?', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_RAISED: Final = re.compile(r"^([\w.]+)(?:: (.*))?\s*\Z", re.DOTALL)
_NOTED: Final = (
    re.compile(r"^in (?:the function of )?step (?P<quote>['\"])(?P<name>.+)(?P=quote)", re.MULTILINE),
    re.compile(r"^in (?:.* of )?source (?P<quote>['\"])(?P<name>.+)(?P=quote)$", re.MULTILINE),
    re.compile(f"^{ROW_NOTE}(?P<name>.*)$", re.MULTILINE),
)
"""The notes with the step, the source and the row."""
_BEGINS: Final = re.compile(r"(?P<kind>step|source|sink) (?P<quote>['\"])(?P<name>.+?)(?P=quote): ")
"""The beginning of the text of this package's errors."""
_NOTES: Final = re.compile(rf"\n(?=in |{ROW_NOTE})")
_OURS: Final = re.compile(r"(?:^|.*[/\\])((?:beamlike|stages|windowing)[/\\].+\.py)$")
_IN_GROUP: Final = re.compile(r"^ *[|+](?: -+ \d+ -+)? ?", re.MULTILINE)
"""The beginning of each line of a group of errors."""
_WITH_STEPS: Final = ("beamlike.errors", "stages.errors")
"""The modules whose errors have the name of a step."""
_HERE: Final = Path(__file__).parents[2]
_LIBRARY: Final = re.compile(
    r"^<frozen|[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|[/\\](?:pyspark|py4j)\S*\.zip[/\\]"
)


@attrs.frozen(kw_only=True)
class Failure:
    """Why a run failed. A fact that is not known is empty.

    Args:
        error: The type of the error.
        text: Its text, without secrets.
        step: The step or stage that failed.
        source: The source that failed.
        sink: The sink that failed.
        batch: The number of the batch in progress; None between batches.
        row: The row for which a function failed, as JSON.
        place: The last line of the user's code: the file, the line, the function and the statement.
    """

    error: str
    text: str = ""
    step: str = attrs.field(default="", metadata=SPARSE)
    source: str = attrs.field(default="", metadata=SPARSE)
    sink: str = attrs.field(default="", metadata=SPARSE)
    batch: int | None = attrs.field(default=None, metadata=SPARSE)
    row: str = attrs.field(default="", metadata=SPARSE)
    place: str = attrs.field(default="", metadata=SPARSE)

    @classmethod
    def of(cls, error: BaseException, begun: CurrentBatch | None) -> Failure:
        """Describes the error that ended a run in the batch `begun`. A worker's error is read from its traceback."""
        # Notes and causes are included, and an error of a worker has the worker's traceback in its text.
        told = without_colours("".join(traceback.format_exception(error)))
        if isinstance(error, BaseExceptionGroup):
            told = _IN_GROUP.sub("", told)
        said = without_colours(text_of(error))
        kind, text = _raised(said) or (type(error).__name__, said.strip())
        found = attrs.evolve(cls._parsed(told, kind, text), batch=None if begun is None else begun.batch)
        step = getattr(error, "step", None) if type(error).__module__ in _WITH_STEPS else None
        return found if step is None else attrs.evolve(found, step=str(step))

    @classmethod
    def _parsed(cls, told: str, kind: str, text: str) -> Failure:
        """Reads step, source, row and place from the text of a traceback."""
        step, source, row = (found["name"] if (found := one.search(told)) else "" for one in _NOTED)
        named = {"step": step, "source": source}
        if begins := _BEGINS.match(text):
            named[begins["kind"]] = begins["name"]
        return cls(
            error=kind,
            text=without_secrets(text[: 20 * _MOST])[:_MOST],
            row=without_secrets(row),
            place=without_secrets(_place(told)),
            step=named["step"],
            source=named["source"],
            sink=named.get("sink", ""),
        )

    def sentences(self, what: str) -> Iterator[str]:
        """Yields the error, after the words `what`, and then where it was raised."""
        batch = "" if self.batch is None else f" in batch {self.batch}"
        yield f"{what}{batch}: {self.summary}"
        if self._where:
            yield f"it failed {', '.join(self._where)}"
        if self.place:
            yield f"the last line of your code: {self.place}"

    @property
    def _where(self) -> list[str]:
        parts = {"step": self.step, "source": self.source, "sink": self.sink}
        where = [f"in {kind} `{name}`" for kind, name in parts.items() if name]
        return [*where, f"{ROW_NOTE}{self.row}"] if self.row else where

    @property
    def summary(self) -> str:
        """The type and the text of the error, in one line."""
        text = " ".join(self.text.split())
        return f"{self.error}: {text}" if text else self.error


def traceback_text(told: str) -> str:
    """Returns the text of a worker's traceback: the error, where it was raised, and the frames of the user's code."""
    kind, text = _raised(told) or ("an error", told.strip().rpartition("\n")[2])
    found = Failure._parsed(told, kind, text)
    first = ", ".join([found.summary, *found._where, *([f"at {found.place}"] if found.place else [])])
    return without_secrets(f"{first}\n{_folded(told)}")


def _folded(told: str) -> str:
    """Returns a traceback in which a line stands for frames of this package and of libraries. The last frame stays."""
    frames = [*_FRAME.finditer(told)]
    parts, folded = list[str](), 0
    for number, frame in enumerate(frames):
        end = frames[number + 1].start() if number + 1 < len(frames) else len(told)
        if end < len(told) and (_is_ours(frame[1]) or _is_library(frame[1])):
            folded += 1
        else:
            parts += [_fold(folded), told[frame.start() : end]]
            folded = 0
    return "".join(parts).strip("\n")


def _fold(frames: int) -> str:
    return f"  ... {frames} frames of beamlike and of libraries\n" if frames else ""


def _raised(text: str) -> tuple[str, str] | None:
    """Returns type and text of the error at the end of a traceback; None for other text."""
    frames = [*_FRAME.finditer(text)]
    if not frames:
        return None
    # The last frame ends with lines that are indented. The error and its notes follow.
    rest = re.split(r"\n(?=\S)", text[frames[-1].start() :].strip("\n"), maxsplit=1)
    found = _RAISED.match(_NOTES.split(rest[1])[0].strip()) if len(rest) > 1 else None
    return (found[1].rpartition(".")[2], (found[2] or "").strip()) if found else None


def _place(told: str) -> str:
    """Returns the last line of the user's code that this package has called; empty if it has called none."""
    found = ""
    for part in told.split(_TRACEBACK):
        frames = [
            (one[1], f"{one[1]}:{one[2]}, in {one[3]}{_statement(one[4])}") for one in _FRAME.finditer(part)
        ]
        inside, called = False, ""
        for (before, _), (file, text) in pairwise([("", ""), *frames]):
            inside = inside or _is_ours(file)
            if not inside or _is_ours(file):
                continue
            if not _is_library(file):
                found = text
            elif _is_ours(before) and not _is_tool(file):
                called = text  # perhaps a package of the user's that is installed
        found = found or called
    return found


def _statement(line: str | None) -> str:
    return f": {line.strip()}" if line else ""


def _is_ours(file: str) -> bool:
    found = _OURS.match(file)
    return found is not None and (_HERE / found[1]).is_file()


def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None or file.startswith(sysconfig.get_path("stdlib"))


_TOOLS: Final = re.compile(
    r"[/\\](?:attrs?|narwhals|numpy|pandas|polars|_polars_runtime\w*|pyarrow|pyspark|py4j|sqlalchemy|sqlglot|tenacity"
    r"|adbc_\w+|psycopg\w*|deltalake|pyiceberg|confluent_kafka|redis|apache_beam|cattrs?)[/\\]"
)


def _is_tool(file: str) -> bool:
    """True for a file of Python or of a package that this package calls itself."""
    return "-packages" not in file or _TOOLS.search(file) is not None
