"""The watermark of a source: the least watermark of its splits, such as partitions, each of which has a state.

If the strategy has no `per_split`, the source is one split without a name. Splits that are idle or over do not count.

    tasks of a batch    summarize(rows) ──┐
                        summarize(rows) ──┴─ merge ──▶ SourceState.advance ──▶ SourceState of the next batch
                                                       split a: watermark 12:05 ┐
                                                       split b: watermark 12:03 ┴ least: watermark 12:03
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import polars as pl

from stages.facts import SPARSE
from stages.keys import key_named, named_one
from stages.strategies.base import MonotonousTimestamps, Summary, WatermarkStrategy
from stages.strategies.histogram import histogram, merge_histograms
from stages.strategies.lateness import HALF_LIFE, Lateness, learn, percentile_watermark
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

SourceSummary = dict[str, Summary]
"""A summary for each split: `{"own": the strategy's summary, "times": a histogram of event times}` if it has rows.

"times" is there only if lateness is learned. "observed", a histogram, and "oldest", the exact least event time (us),
are there if the plan asks for completeness; one split may have those of the rows of all. `"over": True` is added if the
reader has reached the end of the split. A split that exists and has no rows yet has `{}`.
"""

WHOLE: Final = ""
"""The name of the only split of a source that is not divided into splits."""

MOST_SPLITS: Final = 10_000

_SPLIT: Final = "__split"


# Summaries, which tasks send


def summarize(
    strategy: WatermarkStrategy, frame: pl.DataFrame, file: str = WHOLE, *, observed: bool = False
) -> SourceSummary:
    """Summarizes the rows of each split. Rows have EVENT_TIME and `strategy.columns`.

    `file` is the file that all rows are from, if files are splits. If `observed`, the summary has all event times, from
    which the source learns the lateness of its rows.
    """
    if frame.is_empty():
        return {}
    summary = _summary(strategy, frame, file)
    if observed:  # The histograms of all splits are merged, so one split can have that of all rows.
        summary[min(summary)] |= {"observed": histogram(frame[EVENT_TIME]), "oldest": frame[EVENT_TIME].min()}
    return summary


def _summary(strategy: WatermarkStrategy, frame: pl.DataFrame, file: str) -> SourceSummary:
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
    """Returns the rows of each split, if the strategy learns lateness, and the strategy's summary of each split."""
    if (splits := frame[column].n_unique()) == 1:  # for example, a topic with one partition
        name = split_name(frame, column)
        return {name: frame}, {name: strategy.observe(frame)}
    if len(frame) > MOST_SPLITS:
        _require_few(strategy, splits)
    frame = frame.with_columns(_name(column))
    return _parts(frame) if strategy.learns_lateness else {}, strategy.observe_splits(frame, _SPLIT)


def split_name(rows: pl.DataFrame, column: str) -> str:
    """Returns the name of the split to which the rows belong."""
    return named_one(rows.get_column(column)[:1])


def newest_of_splits(column: str, rows: pl.DataFrame) -> SourceSummary:
    """Returns the newest event time of each split, as the summary of a strategy that depends only on it."""
    newest = MonotonousTimestamps().observe_splits(rows.with_columns(_name(column)), _SPLIT)
    return {split: {"own": own} for split, own in newest.items()}


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
    """Returns the summary of files that exist and have not been read yet. They keep the watermark from advancing."""
    return {file: {} for file in files}


def read_to_end(file: str) -> SourceSummary:
    """Returns the summary of a file that has been read to its end, to be merged with the summary of its rows."""
    return {file: {"over": True}}


def merge(strategy: WatermarkStrategy, one: SourceSummary, other: SourceSummary) -> SourceSummary:
    """Merges two summaries of the same batch. Associative and commutative, with `{}` as identity."""
    return {
        split: _merge_split(strategy, one.get(split, {}), other.get(split, {})) for split in {**one, **other}
    }


def _merge_split(strategy: WatermarkStrategy, one: Summary, other: Summary) -> Summary:
    if not one or not other:
        return one or other
    merged: Summary = {}
    if "own" in one or "own" in other:
        merged["own"] = strategy.merge(one.get("own", {}), other.get("own", {}))
    for histograms in ("times", "observed"):
        if histograms in one or histograms in other:
            merged[histograms] = merge_histograms(one.get(histograms, {}), other.get(histograms, {}))
    if oldest := [part["oldest"] for part in (one, other) if "oldest" in part]:
        merged["oldest"] = min(oldest)
    if "over" in one or "over" in other:
        merged["over"] = True
    return merged


def announced(summary: Summary) -> SourceSummary:
    """Converts a watermark that a source announces, as a summary of its strategy, to the summary of the source."""
    return {WHOLE: {"own": summary}}


# The state of a source


@attrs.frozen
class Split:
    """The state of a split.

    Attributes:
        watermark: The watermark (us).
        percentiles: The percentile watermarks (us) by percentage.
        spoke: The processing time (us) of the last batch with news of the split; None before the first one.
        state: The state of the watermark strategy.
        lateness: The lateness of elements that was learned, if the strategy needs it.
        over: True if the split was read to its end.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    spoke: int | None = None
    state: Summary = attrs.field(factory=dict)
    lateness: Lateness = attrs.field(factory=dict)
    over: bool = False

    def receive(self, strategy: WatermarkStrategy, summary: Summary, processing_time: int) -> Split:
        """Returns the split after a batch with this summary of its rows."""
        lateness = learn(self.lateness, summary.get("times", {}), HALF_LIFE)
        state = strategy.fold(self.state, summary["own"]) if "own" in summary else self.state
        over = "over" in summary
        return attrs.evolve(self, state=state, lateness=lateness, spoke=processing_time, over=over)

    def advance(self, strategy: WatermarkStrategy, processing_time: int) -> Split:
        """Computes the watermarks at this processing time (us). None goes back, and none is behind the 100th."""
        watermark = max(self.watermark, strategy.watermark(self.state, processing_time))
        computed = strategy.percentile_watermarks(self.state)
        if strategy.learns_lateness:
            learned = {
                share: percentile_watermark(self.lateness, share / 100) for share in strategy.percentiles
            }
            computed = {share: time for share, time in learned.items() if time is not None}
        return attrs.evolve(
            self, watermark=watermark, percentiles=_reached(strategy, self.percentiles, computed, watermark)
        )

    def is_over(self, strategy: WatermarkStrategy) -> bool:
        """True if the split has ended: it was read to its end, or its strategy has found its last row."""
        return self.over or strategy.is_over(self.state)


def _reached(
    strategy: WatermarkStrategy, before: Mapping[int, int], now: Mapping[int, int], watermark: int
) -> dict[int, int]:
    """Returns the new percentile watermarks (us): those in `now`, but at least those in `before` and the watermark."""
    return {
        share: max(watermark, before.get(share, MIN_TIME), now.get(share, MIN_TIME))
        for share in strategy.percentiles
    }


@attrs.frozen
class BlockedOn:
    """The reason why a source's watermark does not advance.

    Attributes:
        watermark: The watermark (us) at which it waits.
        silent: The processing time (us) since the last rows.
        split: The split that it waits for; None if the source is not divided into splits, or if splits are awaited.
        awaited: The expected splits that have had no rows yet, as text; empty if there are none.
    """

    watermark: int
    silent: int
    split: str | None = None
    awaited: str = ""


@attrs.frozen
class SourceState:
    """The state of a source, stored from batch to batch.

    Attributes:
        watermark: The watermark (us).
        percentiles: The percentile watermarks (us) by percentage.
        splits: The splits by name.
        awake: The processing time (us) since which the source has been read without a break; None before the first
            batch.
        moved: The processing time (us) at which the watermark last advanced.
        idle: True if all splits have been silent for `idle_after`, so that other sources advance without this one.
        complete: True if all expected splits have had rows.
        left: The newest watermark of the splits that are over, and the last time at which one of them had rows.
        observed: The lateness of the rows of all splits together, if a plan asks for completeness.
        late: True if a row was behind the watermark of the source, or may have been before lateness was observed.
        at_end: True if the input has ended.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    splits: Mapping[str, Split] = attrs.field(factory=dict)
    awake: int | None = None
    moved: int | None = None
    idle: bool = False
    complete: bool = False
    left: Split | None = None
    observed: Lateness = attrs.field(factory=dict, metadata=SPARSE)
    late: bool = attrs.field(default=False, metadata=SPARSE)
    at_end: bool = attrs.field(default=False, metadata=SPARSE)

    def advance(
        self, strategy: WatermarkStrategy, summary: SourceSummary, processing_time: int
    ) -> SourceState:
        """Returns the state after a batch, from the merged summary of all its tasks and its processing time (us).

        The watermark is the least of the splits that are neither idle nor over. If there are none, it moves up to the
        newest watermark of the splits that are over, as others may still appear. It never goes back.
        """
        state = self._observe(summary)._receive(strategy, summary, processing_time)._without_ended(strategy)
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

    def _observe(self, summary: SourceSummary) -> SourceState:
        """Learns the lateness of the rows of a batch, if its summary has their event times."""
        times = merge_histograms(*(part.get("observed", {}) for part in summary.values()))
        if not times:
            return self
        # Before there is a watermark, no row can be behind it.
        late = self.late or (not self.observed and self.watermark > MIN_TIME)
        # The histogram rounds times down, so it could take a row at the watermark for a late one.
        late = late or min(part["oldest"] for part in summary.values() if "oldest" in part) < self.watermark
        return attrs.evolve(self, observed=learn(self.observed, times, HALF_LIFE), late=late)

    def _receive(
        self, strategy: WatermarkStrategy, summary: SourceSummary, processing_time: int
    ) -> SourceState:
        """Adds the summary to its splits, and computes the watermarks of all splits at this processing time."""
        splits = dict(self.splits)
        if strategy.per_split is None:
            splits.setdefault(WHOLE, Split())
        for name, part in sorted(summary.items()):
            # A new split begins at the current watermark. Rows of it that are earlier are late.
            before = splits.get(name) or Split(self.watermark, self.percentiles)
            splits[name] = before.receive(strategy, part, processing_time)
        moved = {name: split.advance(strategy, processing_time) for name, split in splits.items()}
        return attrs.evolve(self, splits=moved, awake=processing_time if self.awake is None else self.awake)

    def _without_ended(self, strategy: WatermarkStrategy) -> SourceState:
        """Removes splits that were read to their end. `left` gets the newest watermark of all that are over."""
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
        """True if a split whose last rows arrived at the processing time `spoke` is idle."""
        return (
            strategy.idle_after is not None
            and processing_time - self._heard(spoke, processing_time) >= strategy.idle_after
        )

    def _heard(self, spoke: int | None, processing_time: int) -> int:
        """Returns the processing time (us) at which silence began. Time in which the source was not read does not
        count.
        """
        awake = processing_time if self.awake is None else self.awake
        return awake if spoke is None else max(spoke, awake)

    def _counted(self, strategy: WatermarkStrategy, processing_time: int) -> dict[str, Split]:
        """Returns the splits that count in the minimum of watermarks; none while expected splits have had no rows."""
        if self._awaited(strategy, processing_time):
            return {}
        return self._active(strategy, processing_time)

    def _awaited(self, strategy: WatermarkStrategy, processing_time: int) -> str:
        if self.complete or self._is_silent(strategy, None, processing_time):
            return ""
        return strategy.awaited(self.splits.keys())

    def blocked_on(self, strategy: WatermarkStrategy, processing_time: int) -> BlockedOn | None:
        """Returns the split that the watermark waits for; None at the end of time, or if all splits are idle or
        over.
        """
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
        """Returns the state after a break, such as that between two runs. Silence during the break does not count."""
        return attrs.evolve(self, awake=processing_time)

    def ended(self) -> SourceState:
        """Returns the state at the end of input: all watermarks are at the end of time."""
        percentiles = dict.fromkeys(self.percentiles, MAX_TIME)
        return attrs.evolve(self, watermark=MAX_TIME, percentiles=percentiles, idle=False, at_end=True)
