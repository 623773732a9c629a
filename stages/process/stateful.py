"""The base of operators of keyed state with fields and timers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.operator import Text
from stages.process.keyed import Keyed
from stages.process.layout import Layout
from stages.process.tables import Cells
from windowing.clocks import PROCESSING_TIME, WATERMARK


@attrs.frozen(slots=False, eq=False)
class Stateful(Keyed):
    """Stores the fields and timers of `layout` for each key and window."""

    layout: Layout

    @property
    def python(self) -> bool:
        """True: the user's code processes the rows."""
        return True

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and processing time if a timer waits for it."""
        return (WATERMARK, PROCESSING_TIME) if "processing" in self.timers.values() else (WATERMARK,)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.layout)

    @property
    def kept(self) -> Mapping[str, object]:
        return self.layout.kinds

    @property
    def timers(self) -> Mapping[str, str]:
        return {name: timer.domain for name, timer in self.layout.timers.items()}

    @property
    def content(self) -> pl.Schema:
        return pl.Schema({**self.layout.content, **self.layout.holding})

    def own_facts(self, text: Text) -> dict[str, str]:
        return self.layout.facts(text)
