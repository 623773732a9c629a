"""The watermark of a source: the least of its splits (partitions), each with a state and watermark of its own.

If a strategy is not `per_split`, the source is one split without a name. A split that is over leaves the minimum.
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
"""The summary of each split: `{"own": the strategy's summary, "times": a histogram}` if it has rows; "times" if needed.

`"over": True` if the reader has reached its end; `{}` for a split that is known to exist.
"""

WHOLE: Final = ""
"""The only split of a source that is not divided into splits."""

MOST_SPLITS: Final = 10_000

_SPLIT: Final = "__split"


# What tasks send


def summarize(strategy: WatermarkStrategy, frame: pl.DataFrame, file: str = WHOLE) -> SourceSummary:
    """The summary of rows with EVENT_TIME and `strategy.columns`; a split without rows has none.

    `file`: the file that all rows are from, if files are splits.
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
    """The rows of each split, if they are needed, and its own summary."""
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
    """The summary of files that exist and are still to be read: they keep the watermark where it is."""
    return {file: {} for file in files}


def read_to_end(file: str) -> SourceSummary:
    """The summary that marks a file as read to its end, beside that of its rows."""
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
    """The summary of a source that announces its watermark, in the terms of its strategy."""
    return {WHOLE: {"own": summary}}


# What is known of a source


@attrs.frozen
class Split:
    """A split: its strategy's state, its watermarks, and when it last spoke.

    `spoke` is the processing time (us) of the last batch with rows of it, None before there was one. `over`: it was
    read to its end.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    spoke: int | None = None
    state: Summary = attrs.field(factory=dict)
    lateness: Lateness = attrs.field(factory=dict)
    over: bool = False

    def receive(self, strategy: WatermarkStrategy, summary: Summary, processing_time: int) -> Split:
        """The split after a batch with this summary of it."""
        lateness = learn(self.lateness, summary.get("times", {}), HALF_LIFE)
        state = strategy.fold(self.state, summary["own"]) if "own" in summary else self.state
        over = "over" in summary
        return attrs.evolve(self, state=state, lateness=lateness, spoke=processing_time, over=over)

    def advance(self, strategy: WatermarkStrategy, processing_time: int) -> Split:
        """The split at this processing time: no watermark goes back, and no percentile is behind the watermark."""
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
        """True if it has no more rows: it was read to its end, or its strategy says so."""
        return self.over or strategy.is_over(self.state)


def _reached(
    strategy: WatermarkStrategy, before: Mapping[int, int], now: Mapping[int, int], watermark: int
) -> dict[int, int]:
    """The percentile watermarks, which go neither back nor behind the watermark; an unknown one is at the watermark."""
    return {
        share: max(watermark, before.get(share, MIN_TIME), now.get(share, MIN_TIME))
        for share in strategy.percentiles
    }


@attrs.frozen
class BlockedOn:
    """The cause that a source's watermark does not advance: a split, or the splits that are `awaited`.

    `split` is None if the source is not divided into splits; `silent` is the processing time (us) since its last rows.
    """

    watermark: int
    silent: int
    split: str | None = None
    awaited: str = ""


@attrs.frozen
class SourceState:
    """The state of a source, kept from batch to batch, and the watermarks that it has reached.

    `awake`: the processing time (us) since when it has been read without a break, None before the first batch; `moved`:
    the one at which its watermark last rose. `idle`: all splits have been silent for `idle_after`, so that other
    sources advance without it. `complete`: all expected splits have spoken. `left`: the newest watermark of the splits
    that are over, and when the last of them spoke.
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
        """The state after a batch, with the merged summary of all its tasks, at its processing time (us).

        The watermark is the least of the splits that are neither idle nor over. If there are none, it stays, and is
        not behind the newest of those that are over: others may still appear. It never goes back.
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
        """The state with every split that has spoken by now, each at this processing time."""
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
        """The state without splits that were read to their end; of all that are over, the newest watermark is kept."""
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
        """True if a split that last spoke then is idle."""
        return (
            strategy.idle_after is not None
            and processing_time - self._heard(spoke, processing_time) >= strategy.idle_after
        )

    def _heard(self, spoke: int | None, processing_time: int) -> int:
        """The processing time since when there has been silence; the time before the source was read does not count."""
        awake = processing_time if self.awake is None else self.awake
        return awake if spoke is None else max(spoke, awake)

    def _counted(self, strategy: WatermarkStrategy, processing_time: int) -> dict[str, Split]:
        """The splits whose least watermark counts: none while others are awaited."""
        if self._awaited(strategy, processing_time):
            return {}
        return self._active(strategy, processing_time)

    def _awaited(self, strategy: WatermarkStrategy, processing_time: int) -> str:
        if self.complete or self._is_silent(strategy, None, processing_time):
            return ""
        return strategy.awaited(self.splits.keys())

    def blocked_on(self, strategy: WatermarkStrategy, processing_time: int) -> BlockedOn | None:
        """The split that the watermark waits for; None if it is at the end of time, or all splits are idle or over."""
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
        """The state after a break, such as that between two runs: silence in it does not count."""
        return attrs.evolve(self, awake=processing_time)

    def ended(self) -> SourceState:
        """The state at the end of input: no rows are left, and it waits for no split."""
        percentiles = dict.fromkeys(self.percentiles, MAX_TIME)
        return attrs.evolve(self, watermark=MAX_TIME, percentiles=percentiles, idle=False)
