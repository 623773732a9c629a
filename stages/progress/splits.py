"""A source's clock: each split (partition) has its state and watermark, and the source is where the least of them is.

Where a strategy is not `per_split`, the source is one split with no name. One that is over leaves the minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import polars as pl

from stages.keys import key_named
from stages.strategies.base import Summary, WatermarkStrategy
from stages.strategies.histogram import histogram, merge_histograms
from stages.strategies.lateness import HALF_LIFE, Lateness, learn, percentile_watermark
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

SourceSummary = dict[str, Summary]
"""By split: `{"own": the strategy's summary, "times": a histogram}` if it has rows, the latter if it is needed.

`"over": True` where the reader has come to its end; `{}` is a split of which is only known that there is one.
"""

WHOLE: Final = ""
"""The only split of a source that is not looked at split by split."""

MOST_SPLITS: Final = 10_000

_SPLIT: Final = "__split"


# What tasks send


def summarize(strategy: WatermarkStrategy, frame: pl.DataFrame, file: str = WHOLE) -> SourceSummary:
    """The summary of rows with EVENT_TIME and `strategy.columns`; a split without rows has none.

    `file`: where all are from, if files are splits.
    """
    if frame.is_empty():
        return {}
    if not isinstance(strategy.per_split, str):
        name = WHOLE if strategy.per_split is None else file
        parts, own = {name: frame}, {name: strategy.observe(frame)}
    else:
        parts, own = _split(strategy, frame, strategy.per_split)
    if not strategy.learns_lateness:
        return {split: {"own": summary} for split, summary in own.items()}
    return {
        split: {"own": summary, "times": histogram(parts[split][EVENT_TIME])}
        for split, summary in own.items()
    }


def _split(
    strategy: WatermarkStrategy, frame: pl.DataFrame, column: str
) -> tuple[dict[str, pl.DataFrame], dict[str, Summary]]:
    """The rows of each split, where they are needed, and its own summary."""
    if (splits := frame[column].n_unique()) == 1:  # as with a topic of one partition
        name = frame[:1].select(_name(column)).item()
        return {name: frame}, {name: strategy.observe(frame)}
    if len(frame) > MOST_SPLITS:
        _require_few(strategy, splits)
    frame = frame.with_columns(_name(column))
    return _parts(frame) if strategy.learns_lateness else {}, strategy.observe_splits(frame, _SPLIT)


def _name(column: str) -> pl.Expr:
    return key_named(column).alias(_SPLIT)


def _parts(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    parts = frame.select(_SPLIT, EVENT_TIME).partition_by(_SPLIT, as_dict=True)
    return {name: part for (name,), part in parts.items()}


def _require_few(strategy: WatermarkStrategy, splits: int) -> None:
    if splits > MOST_SPLITS:
        of_column = f"the column {strategy.per_split!r} has {splits} different values"
        what = of_column if isinstance(strategy.per_split, str) else f"{splits} files are not yet read"
        raise ValueError(
            f"{type(strategy).__name__}: {what}, which is more than the {MOST_SPLITS} splits of a source; a split is a "
            "partition or a file, not a key"
        )


def known(files: Iterable[str]) -> SourceSummary:
    """The summary of files that are there and are still to be read: they hold the watermark where it is."""
    return {file: {} for file in files}


def read_to_end(file: str) -> SourceSummary:
    """The summary that says so of a file, beside that of its rows."""
    return {file: {"over": True}}


def merge(strategy: WatermarkStrategy, one: SourceSummary, other: SourceSummary) -> SourceSummary:
    """The summary of both, which are of the same batch. Associative and commutative; `{}` changes nothing."""
    return {
        split: _merge_split(strategy, one.get(split, {}), other.get(split, {})) for split in {**one, **other}
    }


def _merge_split(strategy: WatermarkStrategy, one: Summary, other: Summary) -> Summary:
    if not one or not other:
        return one or other
    merged: Summary = {}
    if "own" in one or "own" in other:
        merged["own"] = strategy.merge(one.get("own", {}), other.get("own", {}))
    if "times" in one or "times" in other:
        merged["times"] = merge_histograms(one.get("times", {}), other.get("times", {}))
    if "over" in one or "over" in other:
        merged["over"] = True
    return merged


def announced(summary: Summary) -> SourceSummary:
    """The summary of a source that says itself how complete it is, in its strategy's terms."""
    return {WHOLE: {"own": summary}}


# What is known of a source


@attrs.frozen
class Split:
    """One split: what its batches have made of its state, how far it has come, and when it last spoke.

    `spoke` is the processing time (us) of the last batch that had rows of it, None before there was one. `over`: it
    was read to its end.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    spoke: int | None = None
    state: Summary = attrs.field(factory=dict)
    lateness: Lateness = attrs.field(factory=dict)
    over: bool = False

    def receive(self, strategy: WatermarkStrategy, summary: Summary, processing_time: int) -> Split:
        """After a batch that tells of it."""
        lateness = learn(self.lateness, summary.get("times", {}), HALF_LIFE)
        state = strategy.fold(self.state, summary["own"]) if "own" in summary else self.state
        over = "over" in summary
        return attrs.evolve(self, state=state, lateness=lateness, spoke=processing_time, over=over)

    def advance(self, strategy: WatermarkStrategy, processing_time: int) -> Split:
        """At this processing time: no watermark goes back, and none of a percentile is behind the watermark."""
        watermark = max(self.watermark, strategy.watermark(self.state, processing_time))
        told = strategy.percentile_watermarks(self.state)
        if strategy.learns_lateness:
            learned = {
                share: percentile_watermark(self.lateness, share / 100) for share in strategy.percentiles
            }
            told = {share: time for share, time in learned.items() if time is not None}
        return attrs.evolve(
            self, watermark=watermark, percentiles=_reached(strategy, self.percentiles, told, watermark)
        )

    def is_over(self, strategy: WatermarkStrategy) -> bool:
        """Whether nothing more is to come of it: it was read to its end, or says so."""
        return self.over or strategy.is_over(self.state)


def _reached(
    strategy: WatermarkStrategy, before: Mapping[int, int], now: Mapping[int, int], watermark: int
) -> dict[int, int]:
    """Percentile watermarks go neither back nor behind the watermark; one of which nothing is known stands with it."""
    return {
        share: max(watermark, before.get(share, MIN_TIME), now.get(share, MIN_TIME))
        for share in strategy.percentiles
    }


@attrs.frozen
class BlockedOn:
    """What a source's watermark waits for: that a split goes on, or that those which are `awaited` speak at all.

    `split` is None where the source is not looked at split by split; `silent` is how long nothing has come of it,
    in microseconds of processing time.
    """

    watermark: int
    silent: int
    split: str | None = None
    awaited: str = ""


@attrs.frozen
class SourceState:
    """What is known of a source, kept from batch to batch, and the watermarks that it has reached.

    `awake`: the processing time (us) since when it has been looked at without a break, None before the first
    batch; `moved`: when its watermark last rose. `idle`: all of it has been silent for `idle_after`, so that it
    says nothing and others go on without it. `complete`: all splits that are expected have spoken. `left`: how far
    the newest of the splits that are over had come, and when the last of them spoke.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    splits: Mapping[str, Split] = attrs.field(factory=dict)
    awake: int | None = None
    moved: int | None = None
    idle: bool = False
    complete: bool = False
    left: Split | None = None

    def advance(
        self, strategy: WatermarkStrategy, summary: SourceSummary, processing_time: int
    ) -> SourceState:
        """After a batch, with the merged summary of all its tasks, at its processing time (us).

        The watermark is the least of the splits that are neither idle nor over. If there are none, it stays, and is
        not behind the newest of those that are over: others may still come. It never goes back.
        """
        state = self._receive(strategy, summary, processing_time)._without_ended(strategy)
        _require_few(strategy, len(state.splits))
        active = state._counted(strategy, processing_time).values()
        newest = MIN_TIME
        if state.left is not None and not state._awaited(strategy, processing_time):
            newest = state.left.watermark
        watermark = max(self.watermark, min((split.watermark for split in active), default=newest))
        least = {
            share: min((split.percentiles[share] for split in active), default=MIN_TIME)
            for share in strategy.percentiles
        }
        last = None if state.left is None else state.left.spoke
        silent = not active and state._is_silent(strategy, last, processing_time)
        return attrs.evolve(
            state,
            watermark=watermark,
            percentiles=_reached(strategy, self.percentiles, least, watermark),
            moved=processing_time if watermark > self.watermark else self.moved,
            idle=silent and watermark < MAX_TIME,
        )

    def _receive(
        self, strategy: WatermarkStrategy, summary: SourceSummary, processing_time: int
    ) -> SourceState:
        """With every split that has spoken by now, each where it is at this processing time."""
        splits = dict(self.splits)
        if strategy.per_split is None:
            splits.setdefault(WHOLE, Split())
        for name, part in sorted(summary.items()):
            # A new one joins at the watermark: what it has before that is late.
            before = splits.get(name) or Split(self.watermark, self.percentiles)
            splits[name] = before.receive(strategy, part, processing_time)
        moved = {name: split.advance(strategy, processing_time) for name, split in splits.items()}
        return attrs.evolve(self, splits=moved, awake=processing_time if self.awake is None else self.awake)

    def _without_ended(self, strategy: WatermarkStrategy) -> SourceState:
        """What is to be kept of splits that are over; those that were read to their end are gone for good."""
        over = [split for split in self.splits.values() if split.is_over(strategy)]
        if self.left is not None:
            over.append(self.left)
        complete = self.complete or not strategy.awaited(self.splits.keys())
        going = {name: split for name, split in self.splits.items() if not (complete and split.over)}
        left = None
        if over:
            spoke = max((split.spoke for split in over if split.spoke is not None), default=None)
            left = Split(max(split.watermark for split in over), spoke=spoke)
        return attrs.evolve(self, splits=going, complete=complete, left=left)

    def _live(self, strategy: WatermarkStrategy) -> dict[str, Split]:
        return {name: split for name, split in self.splits.items() if not split.is_over(strategy)}

    def _active(self, strategy: WatermarkStrategy, processing_time: int) -> dict[str, Split]:
        return {
            name: split
            for name, split in self._live(strategy).items()
            if not self._is_silent(strategy, split.spoke, processing_time)
        }

    def _is_silent(self, strategy: WatermarkStrategy, spoke: int | None, processing_time: int) -> bool:
        """Whether who last spoke then is idle."""
        return (
            strategy.idle_after is not None
            and processing_time - self._heard(spoke, processing_time) >= strategy.idle_after
        )

    def _heard(self, spoke: int | None, processing_time: int) -> int:
        """Since when there has been silence. While nobody listened does not count."""
        awake = processing_time if self.awake is None else self.awake
        return awake if spoke is None else max(spoke, awake)

    def _counted(self, strategy: WatermarkStrategy, processing_time: int) -> dict[str, Split]:
        """The splits of which the least counts: none while others are awaited."""
        if self._awaited(strategy, processing_time):
            return {}
        return self._active(strategy, processing_time)

    def _awaited(self, strategy: WatermarkStrategy, processing_time: int) -> str:
        if self.complete or self._is_silent(strategy, None, processing_time):
            return ""
        return strategy.awaited(self.splits.keys())

    def blocked_on(self, strategy: WatermarkStrategy, processing_time: int) -> BlockedOn | None:
        """What the watermark waits for; None if it is at the end of time, or all splits are idle or over."""
        if self.watermark >= MAX_TIME:
            return None
        awaited = self._awaited(strategy, processing_time)
        if awaited:
            silent = processing_time - self._heard(None, processing_time)
            return BlockedOn(self.watermark, silent, awaited=awaited)
        active = self._active(strategy, processing_time)
        if not active:
            return None
        name = min(active, key=lambda name: (active[name].watermark, name))
        silent = processing_time - self._heard(active[name].spoke, processing_time)
        return BlockedOn(active[name].watermark, silent, None if strategy.per_split is None else name)

    def resumed(self, processing_time: int) -> SourceState:
        """After a time in which nobody looked, such as that between two runs: it is not held against the splits."""
        return attrs.evolve(self, awake=processing_time)

    def ended(self) -> SourceState:
        """At the end of input: nothing is still to come, and it waits for nobody."""
        percentiles = dict.fromkeys(self.percentiles, MAX_TIME)
        return attrs.evolve(self, watermark=MAX_TIME, percentiles=percentiles, idle=False)
