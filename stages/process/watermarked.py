"""The operator of `with_watermark` after a stage: passes rows on, and holds the watermark at that of a strategy.

The output watermark is the lesser of the input watermark, before which no row can come, and the strategy's watermark,
which looks at the rows that do come. One shard has all rows, so the result does not depend on the number of shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.facts import from_json, to_json
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.progress.splits import SourceState, summarize
from stages.state_tables import KeyedTable, Loaded, State, StateTable
from stages.strategies.base import WatermarkStrategy
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import PANE_RETRACTED

_FACTS: Final = "__facts"
"""The column with the state of the strategy, as JSON."""
_ESTIMATE: Final = "__estimate"
"""The column with the watermark of the strategy (us)."""


@attrs.frozen(slots=False, eq=False)
class Estimates(StateTable[KeyedTable]):
    """The state table of a strategy's state, with a single row."""

    strategy: WatermarkStrategy

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks on which the watermark depends: processing time, too, if a split may become idle."""
        return (WATERMARK, PROCESSING_TIME) if self.strategy.needs_time else (WATERMARK,)

    @cached_property
    def table(self) -> KeyedTable:
        schema = pl.Schema({_FACTS: pl.String(), **dict.fromkeys((_ESTIMATE, PENDING, HOLD), pl.Int64())})
        return KeyedTable(
            row="watermark",
            waits="is estimated",
            keys=(),
            bounds=(_ESTIMATE, _ESTIMATE),
            schema=schema,
            incoming=schema,
            said=f"the strategy {type(self.strategy).__name__} estimates that earlier rows may arrive",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns no deadline: a row is never due, because every step loads it."""
        return {clock: pl.lit(None, pl.Int64) for clock in self.clocks}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows

    def row(self, state: SourceState) -> pl.DataFrame:
        """Returns the row for a state. An idle strategy does not hold the watermark."""
        hold = None if state.idle else state.watermark
        facts = to_json(state, ordered=True).decode()
        return pl.DataFrame([(facts, state.watermark, 0, hold)], self.table.schema, orient="row")


@attrs.frozen(slots=False, eq=False)
class Watermarked(Operator):
    """The operator that passes rows on, and holds the watermark at that of a strategy.

    Attributes:
        schema: The schema of arriving rows, with their event time.
        strategy: The strategy, which observes the event times of the rows.
    """

    schema: pl.Schema
    strategy: WatermarkStrategy

    @property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input((), self.schema)}

    @cached_property
    def estimates(self) -> Estimates:
        """The state table of the strategy's state."""
        return Estimates(self.strategy)

    @property
    def tables(self) -> tuple[StateTable[KeyedTable], ...]:
        return (self.estimates,)

    @property
    def clocks(self) -> tuple[str, ...]:
        return self.estimates.clocks

    @property
    def gives_changes(self) -> bool:
        return PANE_RETRACTED in self.schema

    @property
    def declared(self) -> Declaration:
        return Declaration("watermark", {"watermark": self.strategy})

    def facts(self, text: Text) -> dict[str, str]:
        return {"watermark": f"{text(self.strategy)}, or what is known, if that is less"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Passes the rows on, and advances the state of the strategy."""
        rows = arrivals[MAIN]
        loaded = state.load(self.estimates, self.estimates.row(SourceState()))
        before = SourceState()
        if len(loaded.rows):
            before = from_json(SourceState, loaded.rows[_FACTS].item())
        after = before.advance(self.strategy, summarize(self.strategy, rows), clock.processing_time)
        stored = self.estimates.table.no_rows if clock.at_end else self.estimates.row(after)
        state.write_back(self.estimates, stored)
        return StepOutput(rows, len(rows), len(rows), len(rows))
