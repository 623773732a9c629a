"""Reports whether a window, or the windows of a key, still wait, have fired, or are closed for late elements."""

from __future__ import annotations

from collections.abc import Iterator

from beamlike.observe.waiting.blocking import BlockingChain
from beamlike.observe.waiting.window_query import Window, parse_key
from beamlike.observe.words import clock, counts, holder_text, holding_text, length, moment, rows
from beamlike.records.graph import StageDescription
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, StageRecord
from beamlike.records.seen_keys import keys_of, might_contain
from beamlike.runtime.run.drops import WHY
from stages.completeness import PROVED
from stages.state.index import HoldOwner
from windowing.lateness import collection


def verdict(
    chain: BlockingChain, history: History, name: str, key: str | None, window: Window | None
) -> Iterator[str]:
    """Yields sentences about a window, about all windows of a key, or about one window of a key."""
    if key is not None and not _has_come(history, name, key):
        yield f"no element of key {key} has arrived at stage `{name}` in this run: there is nothing to wait for"
        return
    gap = chain.plan.stages[name].session_gap
    if window is not None and gap == window.end - window.start:
        yield f"a session of which {moment(window.start)} is the last element ends {length(gap)} later"
    if window is None:
        yield from _of_key(chain, name, str(key))
    elif chain.stage(name).input < window.end:
        yield from _open(chain, name, key, window)
    else:
        yield from _over(chain, history, name, window)
    yield from _dropped(history, name)


def _of_key(chain: BlockingChain, name: str, key: str) -> Iterator[str]:
    held = chain.stage(name).window
    if held is not None and held.key == key:
        yield from map(str, chain.output_waits(name))
        return
    if chain.stage(name).live == 0:
        row = chain.plan.stages[name].row
        yield f"stage `{name}` has no {row}s in state, of key {key} or any other: none waits for anything"
        yield from map(str, chain.input_waits(name))
        return
    other = f"; that is {holder_text(held)}" if held is not None else ""
    yield f"key {key} is not what holds the output watermark of stage `{name}`{other}"
    if not chain.plan.stages[name].windowed:
        yield from map(str, chain.input_waits(name))
        return
    if chain.fires_at_end(name):
        at = moment(chain.stage(name).input)
        yield f"its windows fire when the input watermark of stage `{name}` reaches their ends; it is at {at}"
    else:
        yield f"its windows fire when their trigger {chain.plan.stages[name].choices['trigger']} says so"
    yield from map(str, chain.input_waits(name))


def _has_come(history: History, name: str, key: str) -> bool:
    """True if an element of this key has arrived, or may have. Raises `UnknownKey` if the text cannot be a key."""
    row = parse_key(key, name, history.plan.stages[name])
    if row is None or history.path is None:
        return True
    return might_contain(keys_of(history.path), name, row) is not False


def _open(chain: BlockingChain, name: str, key: str | None, window: Window) -> Iterator[str]:
    whose = f"key {key} in {window}" if key is not None else f"window {window}"
    held = chain.stage(name).window
    if held is None or not _is(held, key, window, chain.plan.stages[name]):
        yield f"{whose} of stage `{name}` is not over"
        yield from map(str, chain.window_waits(name, window.start, window.end))
        return
    yield f"{holder_text(held)} of stage `{name}` is not over, and {holding_text(held)}"
    yield from map(str, chain.window_waits(name, held.start, held.end))
    yield (
        f"until then it holds the output watermark of stage `{name}` at {moment(held.hold)}: "
        f"{chain.pane_time(name)}"
    )


def _is(held: HoldOwner, key: str | None, window: Window, stage: StageDescription) -> bool:
    """True if the holder is this window, or a merging window that may have grown from it."""
    if key is not None and held.key != key:
        return False
    if key is not None and stage.spacing is None:
        return held.start < window.end and window.start < held.end
    return (held.start, held.end) == (window.start, window.end)


def _over(chain: BlockingChain, history: History, name: str, window: Window) -> Iterator[str]:
    """Yields sentences about when the input watermark passed the window's end, and whether elements are still
    accepted.
    """
    stage, at = history.plan.stages[name], chain.stage(name).input
    passed = _first_past(history, name, window.end)
    if passed is not None:
        yield _fired(chain, name, window, passed)
    until = collection(window.end, stage.allowed_lateness)
    if at < until:
        yield (
            f"it still accepts late elements, until the input watermark reaches {moment(until)} (allowed lateness "
            f"{stage.choices['allowed lateness']}), which is at {moment(at)}, {length(until - at)} to go"
        )
        yield from map(str, chain.input_waits(name))
        return
    since = _first_past(history, name, until)
    collected = f" since batch {since.batch}, at {clock(since.processing_time)}" if since is not None else ""
    yield f"it is closed{collected}: elements that arrive for it now are dropped as late"


def _fired(chain: BlockingChain, name: str, window: Window, passed: BatchRecord) -> str:
    """Describes the batch in which the window ended, with the panes of that batch."""
    text = (
        f"window {window} of stage `{name}` is over: the input watermark passed its end in batch {passed.batch}, "
        f"at {clock(passed.processing_time)}"
    )
    panes = passed.stages[name].panes
    if not panes:
        return f"{text}, and no window fired there"
    text += _completeness(passed.stages[name], window)
    return f"{text}; in that batch the stage emitted {counts(panes)} panes, its own among them if it had elements"


def _completeness(stage: StageRecord, window: Window) -> str:
    """Describes the completeness that the panes of a window stated, if they did."""
    stated = [
        one.share
        for one in stage.shares
        if (one.start, one.end) == (window.start, window.end) and one.timing != "early"
    ]
    if not stated or stated[0] is None:
        return ""
    if stated[0] == PROVED:
        return ", and it is proved that none of its rows is missing"
    return f", when {100 * stated[0]:.4g}% of its rows were expected to have arrived"


def _first_past(history: History, name: str, time: int) -> BatchRecord | None:
    """Returns the batch in which the stage's input watermark passed a time; None if it has not, or before the
    history.
    """
    past = [batch for batch in history.batches if name in batch.stages and batch.stages[name].input >= time]
    return past[0] if past else None


def _dropped(history: History, name: str) -> Iterator[str]:
    reasons: dict[str, int] = {}
    latest: BatchRecord | None = None
    for batch in history.batches:
        stage = batch.stages.get(name)
        for reason, count in (stage.dropped if stage is not None else {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
            latest = batch
    if latest is None:
        return
    text = f"stage `{name}` has dropped {rows(sum(reasons.values()))}, the last in batch {latest.batch}: "
    yield text + ", ".join(f"{count:,} {WHY.get(reason, reason)}" for reason, count in reasons.items())
