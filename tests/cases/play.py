"""Plays cases: on the stage itself, on the local runner, on Spark. A kind of case is a module in `KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, Literal

import attrs

import beamlike as bl
from tests.cases import dedup, process, side, time_join, window_join
from tests.cases.case import Case, Outcome, Unsupported
from tests.cases.compare import compare

KINDS: Final[Mapping[str, ModuleType]] = {
    "dedup": dedup,
    "process": process,
    "side": side,
    "window_join": window_join,
    "interval_join": time_join,
    "asof_join": time_join,
}
"""Each has `declare(pipeline, case, name)`, whose result has `outcomes(records)`, and `on_stage(case)`."""


@attrs.frozen
class Result:
    """How a case went; `message` says what was expected and what came, or why it cannot be played."""

    id: str
    status: Literal["ok", "failed", "unsupported"]
    message: str = ""

    def __str__(self) -> str:
        """A line."""
        return f"{self.status} {self.id}" + (f": {self.message}" if self.message else "")


Played = Sequence[Outcome] | Exception


def play(cases: Sequence[Case], runner: str = "stage") -> list[Result]:
    """The results, in order. All that can be run together share a run."""
    unsupported = {case.id: why for case in cases if (why := _missing(case)) is not None}
    left = [case for case in cases if case.id not in unsupported]
    together = _played([case for case in left if case.error is None], runner)
    alone = [_played([case], runner)[0] for case in left if case.error is not None]
    played = dict(zip([case.id for case in left if case.error is None], together, strict=True))
    played |= zip([case.id for case in left if case.error is not None], alone, strict=True)
    return [
        Result(case.id, "unsupported", unsupported[case.id])
        if case.id in unsupported
        else _result(case, played[case.id])
        for case in cases
    ]


def _missing(case: Case) -> str | None:
    """What there is not that the case needs."""
    if case.kind not in KINDS:
        return f"cases of kind {case.kind!r} are not played yet"
    try:
        KINDS[case.kind].declare(bl.Pipeline("case"), case, "case")
    except Unsupported as error:
        return str(error)
    except Exception:  # It is refused, and the case may say so.
        return None
    return None


def _result(case: Case, played: Played) -> Result:
    if case.error is not None:
        told = " ".join(str(played).split())
        if isinstance(played, Exception) and case.error in told:
            return Result(case.id, "ok")
        return Result(case.id, "failed", f"expected the error {case.error!r}, came {told}")
    if isinstance(played, Exception):
        return Result(case.id, "failed", f"{type(played).__name__}: {' '.join(str(played).split())}")
    wrong = compare(case, played)
    return Result(case.id, "ok") if wrong is None else Result(case.id, "failed", wrong)


def _played(cases: Sequence[Case], runner: str) -> list[Any]:
    """What each gave. Where a run of several fails, its halves are run, until it is clear which it was."""
    if runner == "stage":
        return [_caught(partial(KINDS[case.kind].on_stage, case)) for case in cases]
    if not cases:
        return []
    together = _caught(lambda: in_pipeline(cases, _runner(runner)))
    if not isinstance(together, Exception):
        return list(together)
    if len(cases) == 1:
        return [together]
    middle = len(cases) // 2
    return _played(cases[:middle], runner) + _played(cases[middle:], runner)


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # Whatever it is, the other cases are played.
        return error


def _runner(name: str) -> Any:
    if name == "local":
        return bl.LocalRunner()
    from beamlike.spark.runner import SparkRunner  # who plays cases in process needs no Spark

    return SparkRunner(shards=1)


def in_pipeline(cases: Sequence[Case], runner: Any) -> list[list[Outcome]]:
    """All in one run: each case is a source, a stage and sinks of its own; batch i is move i of all."""
    pipeline = bl.Pipeline("cases")
    declared = [KINDS[case.kind].declare(pipeline, case, case.id) for case in cases]
    run = pipeline.run(runner)
    records = {record.batch: record for record in run.batches}
    return [part.outcomes(records) for part in declared]
