"""Explains why a window has not fired: what its stage waits for, followed upstream to the cause."""

from __future__ import annotations

from collections.abc import Iterator

from beamlike.errors import UnknownWindow, WrongType
from beamlike.observe.waiting.blocking import BlockingChain
from beamlike.observe.waiting.window_query import Window, parse_window
from beamlike.observe.waiting.window_status import verdict
from beamlike.observe.words import clock, current_texts, failure_texts, length, moment
from beamlike.records.history import History
from beamlike.records.model import is_a_time
from beamlike.records.unread import unread_input
from windowing.time import MAX_TIME


def why(
    history: History,
    *,
    stage: str | None = None,
    key: str | None = None,
    window: str | None = None,
    now: int | None = None,
) -> list[str]:
    """Explains in sentences which watermark a stage or window waits for: its distance, what holds it, and since when.

    The first sentences say why the run failed, or where it was killed.

    Args:
        history: The history of the run.
        stage: The name of a stage; by default all stages that have not reached the end of input, the most downstream
            first.
        key: A key as tables show it; several key columns are separated by a comma.
        window: START/END, or a time in the window, in ISO 8601.
        now: The time in microseconds, by default this machine's. A finished run is explained as of its last batch.

    Raises:
        UnknownStage: The run has no such stage. It is a `ViewError`, like the following errors.
        UnknownWindow: The stage has no such window.
        UnknownKey: The stage has no such key.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).named("days")
        >>> days.write("out", bl.Memory())
        <Collection 'days': n Int64>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> for sentence in bl.observe.why(bl.observe.History.open("plays.jsonl"))[1:]:
        ...     print(sentence)
        all stages are at the end of input: nothing waits any more
    """
    if not isinstance(history, History):
        raise WrongType(
            f"why takes a history, such as bl.observe.History.open('checkpoint'), not {history!r}"
        )
    answers = waits(history, stage=stage, key=key, window=window, now=now)
    present = history.present(now)
    if present.batch is None:
        when = f"pipeline {history.plan.pipeline!r} has not recorded a batch yet"
    else:
        when = f"after batch {present.batch.batch}, at {clock(present.batch.processing_time)}"
    unread = unread_input(history.batches, history.changed)
    state = [f"{when}; {run_state(history)}", *current_texts(history, present)]
    return [*failure_texts(history, present), *state, *answers, *unread]


def waits(
    history: History,
    *,
    stage: str | None = None,
    key: str | None = None,
    window: str | None = None,
    now: int | None = None,
) -> list[str]:
    """Returns the sentences of `why` about stages and windows only; none before the first batch."""
    if stage is not None:
        history.require_stage(stage)
    present = history.present(now)
    if present.batch is None:
        return []
    chain = BlockingChain(history.plan, present, present.batch)
    return [*_answers(chain, history, stage, key, window)]


def run_state(history: History) -> str:
    """Describes the state of the run and, if there are any, the number of damaged lines in its records."""
    bad = history.bad_lines
    left_out = f"; {bad:,} damaged {'line' if bad == 1 else 'lines'} of its records left out" if bad else ""
    return _run_state(history) + left_out


def _run_state(history: History) -> str:
    states = {"ended": "the run has ended", "stopped": "the run was stopped", "failed": "the run failed"}
    if history.closed is not None:
        return states.get(history.closed, f"the run {history.closed}")
    if history.alive is None:
        return "the run is running, or was killed"
    return "the run is running" if history.alive else "the run was killed"


def _answers(
    chain: BlockingChain, history: History, stage: str | None, key: str | None, window: str | None
) -> Iterator[str]:
    if window is not None or key is not None:
        for name, asked in _asked(history, stage, key, window).items():
            yield from verdict(chain, history, name, key, asked)
        return
    waiting = [name for name in reversed(list(history.plan.stages)) if chain.output(name) < MAX_TIME]
    if stage is not None:
        waiting = [name for name in waiting if name == stage]
    for name in waiting:
        if name not in chain.reported:
            yield output_text(chain, name)
            yield from map(str, chain.output_waits(name))
    if waiting and (history.closed is not None or history.alive is False):
        yield f"nothing moves until the run is resumed: {_resumed(history)}"
    if not waiting:
        who = f"stage `{stage}` is" if stage is not None else "all stages are"
        yield f"{who} at the end of input: nothing waits any more"


def _resumed(history: History) -> str:
    """Returns how a run can be resumed so that its windows close. One that failed has input that is not processed."""
    if history.closed in ("ended", "stopped"):
        return "with the same checkpoint and new input, or with drain=True, which closes all windows"
    return "with the same checkpoint, from the batch in which it " + (
        "failed" if history.closed else "was killed"
    )


def output_text(chain: BlockingChain, name: str) -> str:
    """Describes the output watermark of a stage, and for how long it has not advanced."""
    present, record = chain.present, chain.stage(name)
    text = f"the output watermark of stage `{name}` is at {moment(record.output)}"
    lag = present.lag(record.output)
    if lag is not None:
        text += f", {length(lag)} behind processing time"
    since = chain.batch.processing_time if record.since is None else record.since
    if since < present.time and is_a_time(record.output):
        text += f", and has been there for {length(present.time - since)}, since {clock(since)}"
    return text


def _asked(
    history: History, stage: str | None, key: str | None, window: str | None
) -> dict[str, Window | None]:
    """Returns the stages that have the given window, each with the window. Without `stage`, returns all that may have
    it.
    """
    stages = history.plan.stages
    names = [name for name in ([stage] if stage is not None else stages) if key is None or stages[name].keys]
    if not names:
        which = f"stage `{stage}` has" if stage is not None else "the stages have"
        raise UnknownWindow(f"{which} no keys: windows are the same for all, so leave out the key")
    if window is None:
        return dict.fromkeys(names)
    found: dict[str, Window | None] = {}
    refused: list[UnknownWindow] = []
    for name in names:
        try:
            found[name] = parse_window(window, name, stages[name])
        except UnknownWindow as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found
