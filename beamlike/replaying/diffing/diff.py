"""`diff`: compares two versions of a pipeline over the recorded input of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.observe.words import aligned
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.replaying.diffing.compare import Cause, PartDiffers, cause, parts
from beamlike.replaying.diffing.outcome import Effect, Outcome
from beamlike.replaying.diffing.playing import play
from beamlike.replaying.diffing.show import row_text, signed_rows
from beamlike.replaying.opening import open_run
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.system.html import bullets, html_text, page, table
from beamlike.system.printable import printable
from windowing.time import MIN_TIME, Duration, microseconds

_MOST: Final = 10
"""The greatest number of rows of each kind that a text shows for a stage or sink."""

_HEADS: Final = ("", "same", "changed", "new", "gone")


@attrs.frozen(eq=False)
class Diff:
    """The differences between two versions of a pipeline over recorded input. True if there are any.

    Its text is a report; a notebook shows tables.

    Attributes:
        batches: The first and the last batch that are compared.
        first: The first batch whose input is recorded. Both versions begin with empty state there.
        parts: The differences of each stage and sink.
        cause: The cause of the first difference; None if all rows are equal.
        effects: The effects of the new version on the state of each stage.
        notes: Sentences about the input of the versions.
    """

    batches: tuple[int, int]
    first: int
    parts: Sequence[PartDiffers]
    cause: Cause | None
    effects: Sequence[Effect]
    notes: Sequence[str]

    @classmethod
    def of(cls, run: RecordedRun, since: int, old: Outcome, new: Outcome) -> Diff:
        """Compares the outcomes of two versions over the batches of a run from a processing time (us) on."""
        compared = [one.number for one in run.batches.values() if one.done and one.now >= since]
        found = parts(old, new)
        both = [one for one in new.notes if one in old.notes]
        notes = [f"both versions: {one}" for one in both]
        for which, outcome in (("old", old), ("new", new)):
            notes += [f"the {which} version: {one}" for one in outcome.notes if one not in both]
        return cls(
            (min(compared), max(compared)),
            run.first,
            found,
            cause(old, new) if any(found) else None,
            new.effects,
            notes,
        )

    def __bool__(self) -> bool:
        return any(self.parts) or any(one.effect == "refused" for one in self.effects)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return page(self._title(), *self._html())

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Writes the differences to an HTML page, which needs no other files, and creates its folder."""
        template = Template(files("beamlike.observe").joinpath("report.html").read_text(encoding="utf-8"))
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = template.substitute(
            title="diff",
            heading="Two versions of a pipeline",
            verdict="".join(f"<p>{html_text(line)}</p>" for line in self._cause_lines()),
            summary=html_text(self._title()),
            body="\n".join(self._html()),
        )
        target.write_text(text, encoding="utf-8")

    def _title(self) -> str:
        first, last = self.batches
        begins = f"; both versions begin with empty state at batch {self.first}" if self.first else ""
        return f"batches {first} to {last} of the run, played with both versions{begins}"

    def _counts(self) -> list[list[str]]:
        found = list[list[str]]()
        for one in self.parts:
            where = "" if one.where == "both" else f" ({one.where})"
            counts = (one.rows.same, len(one.rows.changed), len(one.rows.new), len(one.rows.gone))
            found.append([f"{one.kind} {printable(one.name)}{where}", *(f"{count:,}" for count in counts)])
        return found

    def _lines(self) -> Iterator[str]:
        yield f"{self._title()}:"
        yield from aligned([_HEADS, *self._counts()], left=1)
        yield from self._cause_lines()
        for one in self.parts:
            yield from _part_lines(one)
        yield "state of the run with the new version:"
        yield from (f"    {line}" for line in self._effect_lines())
        yield from (f"Note: {printable(note)}." for note in self.notes)

    def _cause_lines(self) -> Iterator[str]:
        if self.cause is None:
            compared = any(one.rows.same for one in self.parts)
            yield (
                "No pane and no row of a sink differs."
                if compared
                else "Neither version has a pane, or a row for a sink, in these batches."
            )
            return
        yield f"First difference: {printable(self.cause.text)}."
        yield from (f"    {printable(line)}" for line in self.cause.declared)
        if self.cause.row is not None:
            which = "new" if self.cause.added else "old"
            yield f"    first row, only in the {which} version: {row_text(self.cause.row)}"

    def _effect_lines(self) -> Iterator[str]:
        for one in self.effects:
            why = f": {printable(one.why)}" if one.why else ""
            yield f"{f'stage {printable(one.stage)}' if one.stage else 'the run'}: {one.effect}{why}"

    def _html(self) -> Iterator[str]:
        yield f"<h2>Stages and sinks</h2><div class='scroll'>{table(_HEADS, self._counts())}</div>"
        for one in filter(None, self.parts):
            yield f"<h3>{html_text(f'{one.kind} {printable(one.name)}')}</h3>"
            yield from bullets(one.rows.columns)
            yield f"<div class='scroll'>{table(('', ''), signed_rows(one.rows, _MOST))}</div>"
        yield f"<h2>State</h2>{''.join(bullets(self._effect_lines()))}"
        yield from bullets(self.notes)


def _part_lines(one: PartDiffers) -> Iterator[str]:
    if one:
        yield f"{one.kind} {printable(one.name)}:"
        yield from (f"    {printable(line)}" for line in one.rows.columns)
        yield from (f"    {sign} {text}" for sign, text in signed_rows(one.rows, _MOST))


def diff(
    old: Plan | Planned,
    new: Plan | Planned,
    run: str | os.PathLike[str],
    *,
    last: Duration | None = None,
) -> Diff:
    """Plays two versions of a pipeline over the recorded input of a run, and compares what they emit.

    A checkpoint has the input of the last 100 batches. Both versions are played in this process over all of them, from
    empty state, and the sinks receive nothing. Files and tables that the run read must still exist.

    Args:
        old: A version of the pipeline.
        new: Another version. Parts with the name, or the declaration, of a part of the run are the same part.
        run: The checkpoint of the run, in process or on Spark, which must not be running.
        last: Compares only what batches of so long before the end of the last one emit, such as "1h".

    Raises:
        CheckpointError: If there is no run, or it has no batch that is done.
        InputGone: If a source no longer has the input of a batch.

    Example, with the `plays` of `bl.Collection`:
        >>> def counts(minutes):
        ...     p = bl.Pipeline("p")
        ...     rows = bl.Rows([{"at": 10}, {"at": 70}, {"at": 130}])
        ...     strategy = bl.MonotonousTimestamps()
        ...     plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=strategy)
        ...     windows = plays.window_into(bl.FixedWindows(f"{minutes}m"))
        ...     windows.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
        ...     return p
        >>> run = counts(1).run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
        >>> bool(bl.diff(counts(1), counts(1), "checkpoint"))
        False
        >>> found = bl.diff(counts(1), counts(2), "checkpoint")
        >>> [(one.name, len(one.rows.new), len(one.rows.gone)) for one in found.parts]
        [('counts', 2, 3), ('out', 2, 3)]
    """
    versions = [plan_of(one, "diff") for one in (old, new)]
    opened = open_run(run)
    since = compared_since(opened, last)
    return Diff.of(opened, since, *(play(plan, opened, since) for plan in versions))


def compared_since(run: RecordedRun, last: Duration | None) -> int:
    """Returns the processing time (us) from which batches are compared. Raises `CheckpointError` if there are none."""
    times = [one.now for one in run.batches.values() if one.done]
    if not times:
        raise CheckpointError(
            f"no batch of the run of {run.path} is done yet, so there is nothing to compare"
        )
    return MIN_TIME if last is None else max(times) - microseconds(last)
