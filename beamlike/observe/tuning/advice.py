"""Advice about the bound of a watermark, in sentences, from what bounds would have lost."""

from __future__ import annotations

from collections.abc import Iterator

from beamlike.observe.tuning.predict import BoundPrediction, SourcePrediction, SplitNeed
from beamlike.observe.words import length
from beamlike.system.printable import printable
from beamlike.system.texts import quoted
from windowing.time import format_duration

_SOURCE_FILE = "source_file()"


def losses(found: SourcePrediction) -> tuple[str, list[int]]:
    """Returns the word for what is lost, and how many elements each bound loses: those dropped, or else those late."""
    dropped = [bound.dropped for bound in found.bounds]
    return ("dropped", dropped) if any(dropped) else ("late", [bound.late.most for bound in found.bounds])


def knee(found: SourcePrediction) -> BoundPrediction:
    """Returns the bound of which the share that it rescues exceeds its share of the greatest bound the most."""
    _, lost = losses(found)
    first, greatest = max(1, lost[0]), max(1, found.bounds[-1].bound)
    gains = [
        (first - count) / first - one.bound / greatest for one, count in zip(found.bounds, lost, strict=True)
    ]
    return found.bounds[gains.index(max(gains))]


def code(found: SourcePrediction, bound: int) -> str:
    """Returns the strategy with this bound (us) as a line of code."""
    options = ""
    if (split := found.described.per_split) is not None:
        options += f", per_split={'bl.source_file()' if split == _SOURCE_FILE else quoted(split)}"
    if found.described.idle_after is not None:
        options += f', idle_after="{format_duration(found.described.idle_after)}"'
    return f'watermark=bl.BoundedOutOfOrderness("{format_duration(bound)}"{options})'


def advice(found: SourcePrediction) -> Iterator[str]:
    """Yields sentences: the knee, the bound at which nothing is late, the splits, and learned bounds."""
    word, lost = losses(found)
    if not any(lost):
        yield "Nothing would have been late with a bound of 0s."
    else:
        yield _knee_text(found, word, lost)
        yield f"Nothing is late with {length(found.needed)}."
    yield from _used_text(found)
    yield from _split_texts(found)
    if found.learned:
        learned = ", ".join(f"{share} {length(bound)}" for share, bound in found.learned.items())
        yield f"PercentileLateness would have learned, by its share: {learned}."


def _used_text(found: SourcePrediction) -> Iterator[str]:
    """Yields how the bound in use compares with the advised one, if they differ."""
    used, best = found.described.bound, knee(found)
    word, lost = losses(found)
    if used is None or used == best.bound:
        return
    counts = {one.bound: count for one, count in zip(found.bounds, lost, strict=True)}
    other = length(abs(used - best.bound))
    text = f"The bound in use, {length(used)}, loses {counts[used]:,} ({word}): {length(best.bound)} "
    if counts[used] == counts[best.bound]:
        yield (
            f"{text}loses no more, and panes come {other} earlier."
            if used > best.bound
            else f"{text}is no better."
        )
    elif used > best.bound:
        yield f"{text}loses {counts[best.bound]:,}, and panes come {other} earlier."
    else:
        yield f"{text}loses {counts[best.bound]:,}, and panes come {other} later."


def _knee_text(found: SourcePrediction, word: str, lost: list[int]) -> str:
    at = found.bounds.index(knee(found))
    if at == 0:
        text = f"0s loses {share(lost[0], _counted(found, word))}: {lost[0]:,} are {word}"
    else:
        text = (
            f"{length(found.bounds[at].bound)} rescues {share(lost[0] - lost[at], lost[0])} of the {lost[0]:,} "
            f"that are {word} with {length(found.bounds[0].bound)}"
        )
    if lost[at] and at + 1 < len(lost):
        more = found.bounds[at + 1].bound - found.bounds[at].bound
        rest = share(lost[at] - lost[at + 1], lost[at])
        text += (
            f"; {length(found.bounds[at + 1].bound)} costs {length(more)} more and rescues {rest} of the rest"
        )
    return f"{text}."


def _counted(found: SourcePrediction, word: str) -> int:
    return max(found.placed.values(), default=0) if word == "dropped" else found.elements


def _split_texts(found: SourcePrediction) -> Iterator[str]:
    whole = found.unsplit
    if whole is not None and whole.bound > found.needed:
        first, second = (*found.splits, None, None)[:2]
        alone = first is not None and second is not None and first.whole >= 2 * second.whole
        behind = f", as split {_name(first)} is so far behind the others" if first and alone else ""
        (split,) = [one for one in found.bounds if one.bound == found.needed]
        yield (
            f"Without per_split, nothing is late only with {_with_delay(whole)}{behind}; with "
            f"it, {_with_delay(split)} is enough."
        )
    needs = sorted(found.splits, key=lambda split: -split.own)
    if len(needs) > 1 and needs[0].own >= 2 * max(1, needs[1].own):
        yield (
            f"By its own newest time, split {_name(needs[0])} needs {length(needs[0].own)}, and the others at most "
            f"{length(needs[1].own)}."
        )


def _with_delay(one: BoundPrediction) -> str:
    delay = "" if one.delay is None else f" (median delay of panes: {length(one.delay)})"
    return f"{length(one.bound)}{delay}"


def _name(split: SplitNeed) -> str:
    return repr(printable(split.name))


def share(part: int, total: int) -> str:
    """Formats a share in percent: 0 and 100 only if it is exact."""
    if total == 0 or part in (0, total):
        return "0%" if part == 0 else "100%"
    percent = 100 * part / total
    return (
        f"{percent:.1f}%" if percent < 99.95 and percent >= 0.05 else ("<0.1%" if percent < 1 else ">99.9%")
    )
