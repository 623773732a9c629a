"""The state of a grouping as columns: one row per (key, window).

key columns | start end | accumulators | pending | hold | pane numbering | trigger cells | closed
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl
from windowing.columns import PANE_COLUMNS, PANE_FIRST, PANE_LAST, PANE_TIMING, WINDOW_COLUMNS
from windowing.panes import PANE_STATE
from windowing.strategy import Windowing

from stages.aggregates import Aggregate, Part

PENDING: Final = "__pending"
"""Elements since the last pane."""
HOLD: Final = "__hold"
"""Where the pending elements hold the output watermark, in microseconds; null: nowhere."""
CLOSED: Final = "__closed"
"""The trigger has finished: what comes for this very window is dropped until it is collected."""
COUNT: Final = "__count"
NEW_HOLD: Final = "__new_hold"
"""Of arrivals only: how many there are for this window, and the hold that they would place."""


def _accumulator(name: str, part: str) -> str:
    return f"__acc.{name}.{part}"


@attrs.frozen(slots=False)
class Layout:
    """Which columns the rows of a grouping have, and the expressions that fill and fold them."""

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Accumulator column -> its part."""
        return {
            _accumulator(name, part): spec
            for name, aggregate in self.aggregates.items()
            for part, spec in aggregate.parts(self.schema).items()
        }

    @cached_property
    def state(self) -> pl.Schema:
        """The schema of the state rows."""
        return pl.Schema(
            {
                **{key: self.schema[key] for key in self.keys},
                **{column: pl.Int64() for column in WINDOW_COLUMNS},
                **{name: part.dtype for name, part in self.parts.items()},
                PENDING: pl.Int64(),
                HOLD: pl.Int64(),
                **{name: dtype for name, (dtype, _) in PANE_STATE.items()},
                **{name: cell.dtype for name, cell in self.windowing.trigger.cells().items()},
                CLOSED: pl.Boolean(),
            }
        )

    @cached_property
    def incoming(self) -> pl.Schema:
        """The schema of arrivals that have been reduced to one row per (key, window)."""
        return pl.Schema({**self.state, COUNT: pl.Int64(), NEW_HOLD: pl.Int64()})

    @cached_property
    def panes(self) -> pl.Schema:
        """The schema of the panes that the grouping gives, system columns included."""
        results = {name: aggregate.dtype(self.schema) for name, aggregate in self.aggregates.items()}
        times = {column: pl.Int64() for column in ("__event_time", *WINDOW_COLUMNS)}
        numbering: dict[str, pl.DataType] = {column: pl.Int64() for column in PANE_COLUMNS}
        numbering |= {PANE_TIMING: pl.String(), PANE_FIRST: pl.Boolean(), PANE_LAST: pl.Boolean()}
        return pl.Schema({**{key: self.schema[key] for key in self.keys}, **results, **times, **numbering})

    def accumulators(self, name: str) -> dict[str, pl.Expr]:
        """The accumulator columns of one result, as its aggregate names them."""
        parts = self.aggregates[name].parts(self.schema)
        return {part: pl.col(_accumulator(name, part)) for part in parts}

    def lift(self) -> dict[str, pl.Expr]:
        """Accumulators of single elements."""
        return {
            _accumulator(name, part): lifted
            for name, aggregate in self.aggregates.items()
            for part, lifted in aggregate.lift(self.schema).items()
        }

    def merge(self) -> dict[str, pl.Expr]:
        """Accumulators of a group of rows, as aggregations."""
        return {
            _accumulator(name, part): merged
            for name, aggregate in self.aggregates.items()
            for part, merged in aggregate.merge(self.accumulators(name)).items()
        }

    def extract(self) -> dict[str, pl.Expr]:
        """Results of rows."""
        return {
            name: aggregate.extract(self.accumulators(name)).cast(self.panes[name])
            for name, aggregate in self.aggregates.items()
        }

    def emptied(self, mask: pl.Expr) -> dict[str, pl.Expr]:
        """Accumulators set to those of no elements where the mask holds."""
        return {
            name: pl.when(mask).then(_literal(part)).otherwise(pl.col(name))
            for name, part in self.parts.items()
        }

    def fresh(self) -> dict[str, pl.Expr]:
        """What a window has beside key, bounds and accumulators when it is new."""
        cells = self.windowing.trigger.cells()
        return {
            PENDING: pl.lit(0, pl.Int64),
            HOLD: pl.lit(None, pl.Int64),
            **{name: pl.lit(default, dtype) for name, (dtype, default) in PANE_STATE.items()},
            **{name: cell.literal() for name, cell in cells.items()},
            CLOSED: pl.lit(False),
        }


def _literal(part: Part) -> pl.Expr:
    value = list(part.empty) if isinstance(part.empty, tuple) else part.empty
    # A literal of a duration cannot be made of a number.
    return (
        pl.lit(value).cast(part.dtype) if isinstance(part.dtype, pl.Duration) else pl.lit(value, part.dtype)
    )
