"""The step that calls a service: a coroutine function of frames, with retries and a bound of calls at once."""

from __future__ import annotations

import attrs
import polars as pl

from beamlike.rows.dead_letters import error_text
from beamlike.steps.python import Failures, MapBatches
from beamlike.system.fields import whole_number
from windowing.time import Microseconds, format_duration, microseconds


@attrs.frozen(kw_only=True)
class Calls:
    """How `map_batches` calls an asynchronous function: the rows of a batch in several calls, some at the same time.

    A call has at most `rows` rows, at most `at_once` calls run at a time in one task, and one takes at most `timeout`,
    a duration. One that takes longer, or raises, is repeated up to `retries` times, after random waits that double from
    a tenth of a second to ten seconds at most. Raises `TypeError` or `ValueError` for what is none of that.

    Example, with the `plays` of `bl.Collection`:
        >>> async def doubled(frame):
        ...     points = 2 * frame["points"]  # await an answer here
        ...     return frame.with_columns(points=points)
        >>> answers = plays.map_batches(doubled, schema=plays.schema, calls=bl.Calls(rows=2, timeout="5s"))
        >>> answers.collect()["points"].to_list()
        [6, 10, 8]
    """

    rows: int = attrs.field(default=100, validator=whole_number(1))
    at_once: int = attrs.field(default=8, validator=whole_number(1))
    timeout: int = attrs.field(default=Microseconds(30_000_000), converter=microseconds)
    retries: int = attrs.field(default=3, validator=whole_number(0))

    @timeout.validator
    def _longer_than_nothing(self, attribute: attrs.Attribute[int], value: int) -> None:
        if value <= 0:
            raise ValueError(f"timeout must be longer than nothing, not {format_duration(value)}")


@attrs.frozen
class CallBatches(MapBatches):
    """Frames for frames as `MapBatches`, by calls of a coroutine function; only rows of a call that fails are lost."""

    calls: Calls

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """The results in the order of the rows, whatever the order of the answers: a batch waits for all of them."""
        from beamlike.steps.answers import answers

        calls, firsts = self.calls, range(0, rows.height, self.calls.rows)
        pieces = [rows.slice(first, calls.rows) for first in firsts]
        kept = [pl.DataFrame(schema=self.schema).hstack(system.clear())]
        given = answers(self.fn, pieces, calls.at_once, calls.timeout, calls.retries)
        for first, piece, answer in zip(firsts, pieces, given, strict=True):
            try:
                if isinstance(answer, BaseException):
                    raise answer
                result = self.fitted(self.required(answer, piece.height))
            except Exception as error:
                if failures.strict or isinstance(error, MemoryError):
                    error.add_note(f"in the function of step {self.name!r} ({self.kind})")
                    raise
                why = f"{error_text(error)}; the call with {piece.height} rows in which this row was failed"
                failures.misfits(dict.fromkeys(range(first, first + piece.height), why))
            else:
                kept.append(result.hstack(system.slice(first, piece.height)))
        return pl.concat(kept)
