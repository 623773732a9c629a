"""The steps of a plan: bundles of fused stages, and the conversions of elements before and after groupings.

buffer, data  --Only-->  the rows of a buffer  --Bundle-->  buffer, data
                                               --Elements-->  key, value, times  -->  a grouping
                                               --Keyed-->  key, element, times  -->  a stage with state
panes of a grouping  --Panes-->  buffer, data
                     --Firings-->  buffer, data, firing  --Bundle, of each firing-->  ...  --SideElements-->  a side
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from beamlike.beam.cells import BUFFER, DATA
from beamlike.beam.planned.job import Job, Worker
from beamlike.beam.sided import PLACED, SidedNode
from beamlike.beam.sides import FIRING
from beamlike.steps.base import Step

CHUNKS: Final = pl.Schema({BUFFER: pl.Binary(), DATA: pl.Binary()})
"""The columns of rows between steps: a buffer, and encoded elements."""
FIRED_CHUNKS: Final = pl.Schema({**CHUNKS, FIRING: pl.Binary()})
"""The columns of rows on the way from a grouping to a side whose firings replace each other."""


@attrs.frozen
class Only(Step):
    """A step that keeps the rows of a buffer."""

    kind: ClassVar[str] = "beam output"
    buffer: bytes

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.filter(pl.col(BUFFER) == pl.lit(self.buffer))

    @property
    def keeps_rows(self) -> bool:
        return False

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted | {BUFFER}

    def detail(self) -> str:
        return self.buffer.decode()

    def identity(self) -> Any:
        return None


@attrs.frozen
class OfJob(Step):
    """A step that uses the nodes of a pipeline. `said` describes it: the labels of its transforms, or its coder."""

    job: Job
    said: str

    @property
    def python(self) -> bool:
        return True

    @property
    def keeps_rows(self) -> bool:
        return False

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(CHUNKS)

    def detail(self) -> str:
        return self.said

    def identity(self) -> Any:
        """Returns None: like the code of any function, transforms may change."""
        return None


@attrs.frozen
class Fired(OfJob):
    """A step that processes elements in one bundle, or in one for each firing if `fires`."""

    fires: bool

    @property
    def chunks(self) -> pl.Schema:
        """The columns that the step reads."""
        return FIRED_CHUNKS if self.fires else CHUNKS

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(self.chunks)

    def parts(self, frame: pl.LazyFrame) -> Iterator[tuple[tuple[Any, ...], list[bytes]]]:
        """Yields encoded elements, with a tuple of their firing if there is one."""
        rows = frame.select(list(self.chunks)).collect()
        parts = rows.partition_by(FIRING, as_dict=True, maintain_order=True) if self.fires else {(): rows}
        yield from ((firing, part[DATA].to_list()) for firing, part in parts.items() if len(part))


@attrs.frozen
class Bundle(Fired):
    """A step that processes elements with a fused stage."""

    kind: ClassVar[str] = "beam"
    stage: str
    reads: str

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        parts, worker = self.parts(frame), self.job.worker()
        with worker.lock:
            written = [
                (*output, *firing)
                for firing, chunks in parts
                for output in worker.process(self.stage, self.reads, chunks)
            ]
        return pl.LazyFrame(written, self.chunks, orient="row")


@attrs.frozen
class Decoded(OfJob):
    """A step that decodes elements for a stage, in whose state they may be."""

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        chunks = frame.select(DATA).collect()[DATA].to_list()
        worker = self.job.worker()
        with worker.lock:
            return self.rows(worker, chunks).lazy()

    @abstractmethod
    def rows(self, worker: Worker, chunks: list[bytes]) -> pl.DataFrame:
        """Decodes encoded elements to rows."""

    def identity(self) -> Any:
        return {"kind": self.kind, "coder": self.said}


@attrs.frozen
class Encoding(OfJob):
    """A step that encodes rows as elements of a buffer."""

    buffer: bytes
    columns: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        rows = frame.select(self.columns).collect()
        worker = self.job.worker()
        with worker.lock:
            data = self.data(worker, rows)
        return pl.LazyFrame([(self.buffer, data)] if data else [], CHUNKS, orient="row")

    @abstractmethod
    def data(self, worker: Worker, rows: pl.DataFrame) -> bytes:
        """Encodes rows to elements."""

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(self.columns)


@attrs.frozen
class Encoded(Encoding):
    """A step that encodes the rows of a source as elements of its buffer."""

    kind: ClassVar[str] = "beam source"
    collection: str

    def data(self, worker: Worker, rows: pl.DataFrame) -> bytes:
        return worker.encoded(self.collection, rows)


@attrs.frozen
class Elements(Decoded):
    """A step that decodes elements for the grouping of a buffer: a row for each window of an element."""

    kind: ClassVar[str] = "beam grouping"
    buffer: bytes

    def rows(self, worker: Worker, chunks: list[bytes]) -> pl.DataFrame:
        return worker.group(self.buffer).arrivals(chunks)


@attrs.frozen
class Panes(Encoding):
    """A step that encodes the panes of a grouping as elements of its buffer."""

    kind: ClassVar[str] = "beam panes"

    def data(self, worker: Worker, rows: pl.DataFrame) -> bytes:
        return worker.group(self.buffer).encoded(rows)


@attrs.frozen
class Firings(Panes):
    """A step that encodes the panes of a grouping one by one, each with its firing."""

    kind: ClassVar[str] = "beam firings"

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        panes, worker = frame.select(self.columns).collect(), self.job.worker()
        with worker.lock:
            encoded = worker.group(self.buffer).firings(panes)
        return pl.LazyFrame([(self.buffer, *each) for each in encoded], FIRED_CHUNKS, orient="row")


@attrs.frozen
class Keyed(Decoded):
    """A step that decodes the keys and times of elements for a fused stage with state or timers."""

    kind: ClassVar[str] = "beam keys"
    stage: str

    def rows(self, worker: Worker, chunks: list[bytes]) -> pl.DataFrame:
        return worker.stateful(self.stage).arrivals(chunks)


@attrs.frozen
class Placed(Decoded):
    """A step that decodes the times and windows of elements for a fused stage with sides."""

    kind: ClassVar[str] = "beam elements"
    stage: str

    def rows(self, worker: Worker, chunks: list[bytes]) -> pl.DataFrame:
        node = worker.sided(self.stage)
        assert isinstance(node, SidedNode)
        return node.placed(chunks)


@attrs.frozen
class Divided(Decoded):
    """A step that decodes elements for a splittable DoFn: a row for each window of an element."""

    kind: ClassVar[str] = "beam restrictions"
    stage: str

    def rows(self, worker: Worker, chunks: list[bytes]) -> pl.DataFrame:
        return pl.DataFrame(worker.divided(self.stage, chunks), PLACED, orient="row")


@attrs.frozen
class SideElements(Fired):
    """A step that decodes elements for a side: rows for each of their windows, or for each key in them."""

    kind: ClassVar[str] = "beam side"
    stage: str
    side: str

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        parts, worker = self.parts(frame), self.job.worker()
        with worker.lock:
            side = worker.sided(self.stage).sides.inputs[self.side]
            rows = [side.rows(chunks, *firing) for firing, chunks in parts]
            return pl.concat([side.rows(()), *rows]).lazy()

    def identity(self) -> Any:
        return {"kind": self.kind, "coder": self.said}
