"""Sentences about the promises of the stages of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from beamlike.observe.words import length
from beamlike.records.graph import PromiseDescription
from beamlike.records.history import History
from beamlike.records.shares import KEPT, misses


def promise_text(promise: PromiseDescription) -> str:
    """Describes a promise, such as `0.999 within 2m`."""
    return f"{promise.complete:g} within {length(promise.within)}" + (", held" if promise.hold else "")


def kept_promises(history: History) -> dict[str, Counter[str]]:
    """Returns, for each stage with a promise, the number of on-time panes by how they kept it."""
    found = {name: Counter[str]() for name, stage in history.plan.stages.items() if stage.promise is not None}
    for batch in history.batches:
        for name, total in found.items():
            if name in batch.stages:
                total.update(batch.stages[name].promised)
    return found


def promise_lines(history: History) -> Iterator[str]:
    """Yields a sentence for each stage with a promise: how many on-time panes have missed it."""
    for name, total in kept_promises(history).items():
        promise = history.plan.stages[name].promise
        assert promise is not None
        missed = misses(total)
        why = ", ".join(f"{count:,} {how}" for how, count in sorted(total.items()) if count and how != KEPT)
        share = f"missed by {missed:,} of {total.total():,} on-time panes" if total.total() else "no pane yet"
        yield f"stage {name}: promise of {promise_text(promise)}: {share}" + (f" ({why})" if missed else "")
