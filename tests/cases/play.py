"""Plays cases: on the stage itself, on the local runner, on Spark. A kind of case is a module in `KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Final

import beamlike as bl
from beamlike.testing.player import Outcomes, Playback, Result, error_line
from tests.cases import closure, dedup, process, side, time_join, window_join
from tests.cases.case import Case, Outcome, Unsupported
from tests.cases.compare import compare
from tests.cases.declared import DeclaredCase

KINDS: Final[Mapping[str, ModuleType]] = {
    "closure": closure,
    "dedup": dedup,
    "process": process,
    "side": side,
    "window_join": window_join,
    "interval_join": time_join,
    "asof_join": time_join,
}
"""Each has `declare(pipeline, case, name)`, and perhaps `on_stage(case)`."""


def _declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    return KINDS[case.kind].declare(pipeline, case, name)


def _on_stage(case: Case) -> Sequence[Outcome]:
    """Plays a case on its stage; kinds without a stage are played in a run of their own."""
    module = KINDS[case.kind]
    if hasattr(module, "on_stage"):
        return module.on_stage(case)
    (outcomes,) = PLAYBACK.in_pipeline([case], bl.LocalRunner())
    return outcomes


PLAYBACK: Final = Playback(_declare, _on_stage)


def play(cases: Sequence[Case], runner: str = "stage") -> list[Result]:
    """Returns the results, in order. Cases that can run together share a run."""
    unsupported = {case.id: why for case in cases if (why := _missing(case)) is not None}
    left = [case for case in cases if case.id not in unsupported]
    together = PLAYBACK.play([case for case in left if case.error is None], runner)
    alone = [PLAYBACK.play([case], runner)[0] for case in left if case.error is not None]
    played = dict(zip([case.id for case in left if case.error is None], together, strict=True))
    played |= zip([case.id for case in left if case.error is not None], alone, strict=True)
    return [
        Result(case.id, "unsupported", unsupported[case.id])
        if case.id in unsupported
        else _result(case, played[case.id])
        for case in cases
    ]


def _missing(case: Case) -> str | None:
    """Returns the reason why the case is unsupported, or None."""
    if case.kind not in KINDS:
        return f"cases of kind {case.kind!r} are not played yet"
    try:
        KINDS[case.kind].declare(bl.Pipeline("case"), case, "case")
    except Unsupported as error:
        return str(error)
    except Exception:  # A refusal, which the case may expect.
        return None
    return None


def _check(case: Case) -> Callable[[Case, Sequence[Outcome]], str | None] | None:
    """Returns the comparison of all outcomes together, if its kind has one."""
    return getattr(KINDS[case.kind], "check", None)


def _result(case: Case, played: Outcomes) -> Result:
    if case.error is not None:
        told = " ".join(str(played).split())
        if isinstance(played, Exception) and case.error in told:
            return Result(case.id, "ok")
        return Result(case.id, "failed", f"expected the error {case.error!r}, came {told}")
    if isinstance(played, Exception):
        return Result(case.id, "failed", error_line(played))
    wrong = compare(case, played) or (check(case, played) if (check := _check(case)) else None)
    return Result(case.id, "ok") if wrong is None else Result(case.id, "failed", wrong)
