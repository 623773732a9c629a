"""Checks of watermark strategies against their source and its columns."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, ClassVar

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, unknown_column
from beamlike.expressions.describe import describe
from beamlike.io.sources import InSplits, ReadInFiles, ReadInSteps
from beamlike.logical import punctuated
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import Shape
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import IngressTimestamps, ProcessingTimeLag, Summary, WatermarkStrategy
from stages.strategies.validators import SourceFile
from windowing.time import MAX_TIME, is_duration


@attrs.frozen(repr=False)
class NoEventTime(WatermarkStrategy):
    """The strategy of rows without event time. It never holds back the watermark."""

    assigns_event_time: ClassVar[bool] = False

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        return {}

    def watermark(self, state: Summary, processing_time: int) -> int:
        return MAX_TIME


def source_file() -> SourceFile:
    """Splits a source by file, as `per_split=` of a strategy. A file leaves the minimum when it has been read.

    A file that is known and not read yet holds the watermark, so the order of files does not matter. `Pipeline.read`
    raises `PlanError` if the source has no files.

    Example:
        >>> logs = bl.TimeOrderedLogs(bl.source_file())
        >>> files = bl.CSV("logs/*.csv", schema={"at": int})
        >>> bl.Pipeline("p").read("logs", files, timestamp="at", timestamp_unit="s", watermark=logs)
        <Collection 'logs': at Int64>
    """
    return SourceFile()


def by_split(
    source: object, strategy: WatermarkStrategy, columns: Container[str], step: str
) -> WatermarkStrategy:
    """Returns the strategy with `per_split` set to the splits of the source.

    The strategy is unchanged if the source has no splits, if `per_split` is set, or if it does not use event times.
    Raises `PlanError` if steps have removed the column that tells the splits apart.
    """
    if strategy.per_split is not None or isinstance(strategy, IngressTimestamps | ProcessingTimeLag):
        return strategy
    if not isinstance(source, InSplits):
        return strategy
    if source.split not in columns:
        raise PlanError(
            f"a watermark is kept for each partition of {type(source).__name__}, and the rows no longer have the "
            f"column {source.split!r} that tells them apart; keep it, or name another one with per_split=",
            step=step,
        )
    # Splits progress at different speeds. Each needs a watermark of its own, or rows of the slower ones would
    # be late.
    return attrs.evolve(strategy, per_split=source.split)


def own_watermark(source: object) -> WatermarkStrategy | None:
    """Returns the strategy that the source itself provides, if any."""
    own = getattr(source, "watermark", None)
    return own if isinstance(own, WatermarkStrategy) else None


def require_watermark(source: Any, given: object, step: str) -> WatermarkStrategy:
    """Returns the given strategy or, without one, that of the source."""
    own = own_watermark(source)
    if own is not None and given is None:
        return own
    if isinstance(given, WatermarkStrategy) and isinstance(given.per_split, SourceFile):
        _require_files(source, given, step)
    if not isinstance(given, WatermarkStrategy):
        # A source of a user's class may have an attribute `watermark` that is no strategy. The error must
        # name it.
        brought = getattr(source, "watermark", None) if given is None else None
        what = "watermark=" if brought is None else f"the attribute watermark of {type(source).__name__}"
        wrong = given if brought is None else brought
        bound = wrong if isinstance(wrong, str) and is_duration(wrong) else "5s"
        example = f"bl.BoundedOutOfOrderness({bound!r})"
        raise WrongType(f"{what} must be a strategy such as {example}, not {wrong!r}", step=step)
    if isinstance(source, ReadInSteps):
        _require_observable(source, given, step)
    if isinstance(given, AnnouncedWatermark):
        _require_announcing(source, given, step)
    return given


def _require_announcing(source: Any, given: AnnouncedWatermark, step: str) -> None:
    if not isinstance(own_watermark(source), AnnouncedWatermark):
        raise PlanError(
            f"{describe(given)}: {type(source).__name__} announces no watermark; give a strategy such as "
            "bl.BoundedOutOfOrderness('5s'), or read a bl.AnnouncingSource",
            step=step,
        )
    if given.per_split is not None:
        raise PlanError(
            f"{describe(given)}: a source announces one watermark for all of it; leave out per_split",
            step=step,
        )


def _require_files(source: Any, given: WatermarkStrategy, step: str) -> None:
    if not isinstance(source, ReadInFiles):
        kind = type(source).__name__
        raise PlanError(
            f"{describe(given)}: {kind} has no files; name the column that tells its splits apart", step=step
        )


def _require_observable(source: ReadInSteps, given: WatermarkStrategy, step: str) -> None:
    """Raises `PlanError` if a test stream that announces watermarks is given another strategy, or one with
    `max_drift`.
    """
    kind = type(source).__name__
    if source.announces:
        raise PlanError(
            f"{kind} brings its own watermark; leave out watermark={describe(given)}, or the steps of the stream "
            "that advance the watermark",
            step=step,
        )
    if given.max_drift is not None:
        raise PlanError(
            f"{kind} plays one step in every batch, so it cannot wait; leave out max_drift", step=step
        )


def fitted(strategy: WatermarkStrategy, shape: Shape, step: str) -> WatermarkStrategy:
    """Returns the strategy with its expressions checked. Raises `PlanError` unless the columns that it reads exist with
    usable types.
    """
    strategy = punctuated.checked(strategy, shape, step)
    for column in strategy.columns:
        if column not in shape.user:
            note = f"; {describe(strategy)} reads it"
            raise unknown_column(column, shape.user, step, note=note)
    split = strategy.per_split
    if isinstance(split, str):
        dtype = shape.user[split]
        if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
            raise WrongType(
                f"{describe(strategy)}: the names of splits are text or numbers, but {split!r} is {type_name(dtype)}",
                step=step,
            )
    return strategy


def require_alignable(watermarks: Mapping[str, WatermarkStrategy]) -> None:
    """Raises `PlanError` if a strategy has a `max_drift`: on Spark, one source cannot wait for another."""
    for name, watermark in watermarks.items():
        if watermark.max_drift is not None:
            raise PlanError(
                f"{describe(watermark)}: Spark itself decides how much of a source a batch takes, so a source "
                "cannot wait for others there; leave out max_drift and bound the batches of the source with "
                "max_files_per_trigger, or run with bl.LocalRunner()",
                step=name,
            )
