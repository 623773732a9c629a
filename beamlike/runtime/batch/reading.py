"""Reads the sources of a run in this process, and checks that their files exist."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from beamlike.errors import MissingFiles, PlanError, naming_source
from beamlike.io.in_process import InProcess, chunks_of
from beamlike.io.sources import ReadInFiles, ReadInSteps
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import AllChunks, Chunk, Ingested
from stages.progress.splits import announced
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.validators import SourceFile


def read_in_process(source: SourcePlan, rows: int) -> Iterator[Chunk]:
    """Yields the chunks of a source, each with about `rows` rows.

    Raises `PlanError` if the source cannot be read in process, or `MissingFiles`. Both are raised before the first
    chunk.
    """
    if not isinstance(source.source, InProcess):
        raise PlanError(
            "only Spark can read this source: run with runner=bl.SparkRunner(...)", step=source.name
        )
    apart = isinstance(source.watermark.per_split, SourceFile)
    chunks: Iterator[Chunk] = chunks_of(source.source, rows, apart=apart)
    try:
        with naming_source(source.name):
            first = [AllChunks(list(chunks))] if source.whole else list(islice(chunks, 1))
    except FileNotFoundError as error:
        raise MissingFiles(str(error), step=source.name) from None
    return chain(first, chunks)


def require_files(plan: Plan, *, globs: bool) -> None:
    """Raises `MissingFiles` if a path does not exist or, with `globs`, if a glob matches no file."""
    for name, source in plan.sources.items():
        try:
            if isinstance(source.source, ReadInFiles):
                with naming_source(name):
                    source.source.require_there(globs=globs)
        except FileNotFoundError as error:
            raise MissingFiles(str(error), step=name) from None


def ingest_step(source: SourcePlan, number: int) -> tuple[Ingested, int]:
    """Ingests a step of a test stream. Returns the result, and the stream's processing time (us) after the step."""
    assert isinstance(source.source, ReadInSteps)
    step = source.source.step(number)
    if step.elements.height:
        return ingest(source, step.elements, step.processing_time), step.processing_time
    is_announced = isinstance(source.watermark, AnnouncedWatermark) and step.summary
    return Ingested({}, announced(step.summary) if is_announced else {}), step.processing_time
