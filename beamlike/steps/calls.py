"""The step that calls a service: a coroutine function of frames, with concurrent calls and retries."""

from __future__ import annotations

import attrs
import polars as pl

from beamlike.rows.dead_letters import error_text
from beamlike.steps.python import Failures, MapBatches
from beamlike.system.fields import whole_number
from windowing.time import Microseconds, format_duration, microseconds


@attrs.frozen(kw_only=True)
class Calls:
    """Settings of the calls that `map_batches` makes to a coroutine function: the rows of a batch are divided into
    calls, and some calls are concurrent.

    Args:
        rows: The greatest number of rows per call.
        at_once: The greatest number of concurrent calls in a task.
        timeout: The time limit of a call, a duration; 30 seconds by default.
        retries: The number of repetitions of a call that fails or exceeds its time limit, after random waits that
            double from 0.1 to at most 10 seconds.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of range.

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
    """A step like `MapBatches` that calls a coroutine function. Only the rows of a failed call become dead letters."""

    calls: Calls

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Calls the function for pieces of the rows, and waits for all calls. The results are in the order of
        the rows.
        """
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
