"""A source's clock: each split (partition) has its state and watermark, and the source is where the least of them is.

Where a strategy is not `per_split`, the source is one split with no name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
import polars as pl
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

from stages.histogram import histogram, merge_histograms
from stages.keys import key_text
from stages.lateness import HALF_LIFE, Lateness, learn, percentile_watermark
from stages.strategies import Summary, WatermarkStrategy

SourceSummary = dict[str, Summary]
"""By split that has rows: `{"own": the strategy's summary, "times": a histogram}`, the latter if it is needed."""

WHOLE: Final = ""
"""The only split of a source that is not looked at split by split."""

MOST_SPLITS: Final = 10_000

_SPLIT: Final = "__split"


# What tasks send


def summarize(strategy: WatermarkStrategy, frame: pl.DataFrame) -> SourceSummary:
    """The summary of rows with EVENT_TIME and `strategy.columns`; a split without rows has none."""
    if frame.is_empty():
        return {}
    if strategy.per_split is None:
        parts, own = {WHOLE: frame}, {WHOLE: strategy.observe(frame)}
    else:
        frame = frame.with_columns(_name(strategy.per_split))
        _require_few(strategy, frame[_SPLIT].n_unique())
        own = strategy.observe_splits(frame, _SPLIT)
        parts = _parts(frame) if strategy.learns_lateness else {}
    if not strategy.learns_lateness:
        return {split: {"own": summary} for split, summary in own.items()}
    return {
        split: {"own": summary, "times": histogram(parts[split][EVENT_TIME])}
        for split, summary in own.items()
    }


def _name(column: str) -> pl.Expr:
    return key_text(column).fill_null("null").alias(_SPLIT)


def _parts(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    parts = frame.select(_SPLIT, EVENT_TIME).partition_by(_SPLIT, as_dict=True)
    return {name: part for (name,), part in parts.items()}


def _require_few(strategy: WatermarkStrategy, splits: int) -> None:
    if splits > MOST_SPLITS:
        raise ValueError(
            f"{type(strategy).__name__}: the column {strategy.per_split!r} has {splits} different values, which is "
            f"more than the {MOST_SPLITS} splits of a source; a split is a partition or a file, not a key"
        )


def merge(strategy: WatermarkStrategy, one: SourceSummary, other: SourceSummary) -> SourceSummary:
    """The summary of both, which are of the same batch. Associative and commutative; `{}` changes nothing."""
    return {
        split: _merge_split(strategy, one[split], other[split])
        if split in one and split in other
        else one.get(split) or other[split]
        for split in {**one, **other}
    }


def _merge_split(strategy: WatermarkStrategy, one: Summary, other: Summary) -> Summary:
    own = strategy.merge(one["own"], other["own"])
    if not strategy.learns_lateness:
        return {"own": own}
    return {"own": own, "times": merge_histograms(one["times"], other["times"])}


def announced(summary: Summary) -> SourceSummary:
    """The summary of a source that says itself how complete it is, in its strategy's terms."""
    return {WHOLE: {"own": summary}}


# What is known of a source


@attrs.frozen
class Split:
    """One split: what its batches have made of its state, how far it has come, and when it last spoke.

    `spoke` is the processing time (us) of the last batch that had rows of it, None before there was one.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    spoke: int | None = None
    state: Summary = attrs.field(factory=dict)
    lateness: Lateness = attrs.field(factory=dict)

    def receive(self, strategy: WatermarkStrategy, summary: Summary, processing_time: int) -> Split:
        """After a batch that has rows of it."""
        lateness = self.lateness
        if strategy.learns_lateness:
            lateness = learn(lateness, summary["times"], HALF_LIFE)
        state = strategy.fold(self.state, summary["own"])
        return attrs.evolve(self, state=state, lateness=lateness, spoke=processing_time)

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


def _reached(
    strategy: WatermarkStrategy, before: Mapping[int, int], now: Mapping[int, int], watermark: int
) -> dict[int, int]:
    """Percentile watermarks go neither back nor behind the watermark; one of which nothing is known stands with it."""
    return {
        share: max(watermark, before.get(share, MIN_TIME), now.get(share, MIN_TIME))
        for share in strategy.percentiles
    }


@attrs.frozen
class Holder:
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
    says nothing and others go on without it.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    splits: Mapping[str, Split] = attrs.field(factory=dict)
    awake: int | None = None
    moved: int | None = None
    idle: bool = False

    def advance(
        self, strategy: WatermarkStrategy, summary: SourceSummary, processing_time: int
    ) -> SourceState:
        """After a batch, with the merged summary of all its tasks, at its processing time (us).

        The watermark is the least of the splits that are not idle; if all are, it stays. It never goes back.
        """
        state = self._receive(strategy, summary, processing_time)
        active = state._counted(strategy, processing_time).values()
        watermark = max(self.watermark, min((split.watermark for split in active), default=MIN_TIME))
        least = {
            share: min((split.percentiles[share] for split in active), default=MIN_TIME)
            for share in strategy.percentiles
        }
        silent = not active and state._is_silent(strategy, None, processing_time)
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
        _require_few(strategy, len(splits))
        moved = {name: split.advance(strategy, processing_time) for name, split in splits.items()}
        return attrs.evolve(self, splits=moved, awake=processing_time if self.awake is None else self.awake)

    def _active(self, strategy: WatermarkStrategy, processing_time: int) -> dict[str, Split]:
        return {
            name: split
            for name, split in self.splits.items()
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
        silent = self._is_silent(strategy, None, processing_time)
        return "" if silent else strategy.awaited(self.splits.keys())

    def idle_splits(self, strategy: WatermarkStrategy, processing_time: int) -> tuple[str, ...]:
        """The splits that are left out, by name."""
        return tuple(sorted(self.splits.keys() - self._active(strategy, processing_time).keys()))

    def holder(self, strategy: WatermarkStrategy, processing_time: int) -> Holder | None:
        """What the watermark waits for; None if it is at the end of time, or all splits are idle."""
        if self.watermark >= MAX_TIME:
            return None
        awaited = self._awaited(strategy, processing_time)
        if awaited:
            silent = processing_time - self._heard(None, processing_time)
            return Holder(self.watermark, silent, awaited=awaited)
        active = self._active(strategy, processing_time)
        if not active:
            return None
        name = min(active, key=lambda name: (active[name].watermark, name))
        silent = processing_time - self._heard(active[name].spoke, processing_time)
        return Holder(active[name].watermark, silent, None if strategy.per_split is None else name)

    def resumed(self, processing_time: int) -> SourceState:
        """After a time in which nobody looked, such as that between two runs: it is not held against the splits."""
        return attrs.evolve(self, awake=processing_time)

    def ended(self) -> SourceState:
        """At the end of input: nothing is still to come, and it waits for nobody."""
        percentiles = dict.fromkeys(self.percentiles, MAX_TIME)
        return attrs.evolve(self, watermark=MAX_TIME, percentiles=percentiles, idle=False)

    # As plain data

    def facts(self) -> dict[str, Any]:
        """As data that JSON can hold."""
        return attrs.asdict(self)

    @classmethod
    def load(cls, facts: Mapping[str, Any]) -> Self:
        """What `facts` gave, also after JSON has made text of the keys."""
        splits = {
            name: Split(**split | {"percentiles": whole_keys(split["percentiles"])})
            for name, split in facts["splits"].items()
        }
        return cls(**{**facts, "percentiles": whole_keys(facts["percentiles"]), "splits": splits})


def whole_keys(percentiles: Mapping[Any, int]) -> dict[int, int]:
    """As JSON gave them, which makes text of keys."""
    return {int(share): time for share, time in percentiles.items()}
