"""Telemetry for OpenLineage: the datasets of a run, and which input columns each output column is computed from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import Any, Final

import attrs

from beamlike.errors import missing_package

try:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import (
        InputDataset,
        Job,
        OutputDataset,
        Run,
        RunEvent,
        RunState,
    )
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        error_message_run,
        input_statistics_input_dataset,
        job_type_job,
        output_statistics_output_dataset,
        parent_run,
        processing_engine_run,
        schema_dataset,
    )
    from openlineage.client.uuid import generate_new_uuid
except ModuleNotFoundError as error:
    raise missing_package("OpenLineage needs its client", "openlineage", error) from None

from beamlike.io.base import output_schema
from beamlike.io.datasets import datasets_of
from beamlike.plan.lineage import ColumnLineage, SourceColumn, column_lineage
from beamlike.plan.model import Plan, SourcePlan
from beamlike.records.model import BatchRecord
from beamlike.rows.dtypes import type_name
from beamlike.runtime.run.telemetry import PATIENCE, EndOfRun, FinishedBatch, FollowedRun
from beamlike.system.datasets import Dataset
from beamlike.system.secrets import without_secrets
from beamlike.version import version
from windowing.time import Microseconds, format_duration, microseconds

PRODUCER: Final = f"pkg:pypi/beamlike@{version()}"
_PACKAGES: Final = {"local": "polars", "spark": "pyspark"}
_DIRECT: Final = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


class _Client(OpenLineageClient):
    """A client that is configured by environment variables. It removes secrets from the address of the code, if it adds
    that.
    """

    def add_source_code_location_facet(self, event: Any) -> Any:
        event = super().add_source_code_location_facet(event)
        facet = event.job.facets.get("sourceCodeLocation")
        for name in ("url", "repoUrl"):
            if isinstance(found := getattr(facet, name, None), str):
                setattr(facet, name, without_secrets(found))
        return event


@attrs.frozen(eq=False)
class OpenLineage:
    """Telemetry by OpenLineage. Pass it to a runner as `telemetry`.

    A run sends START when it begins, RUNNING at most every `every`, and COMPLETE, FAIL or ABORT at its end. An event
    has the datasets that the run reads and writes, by OpenLineage's naming conventions, with their columns and the rows
    so far; and for each column of the output the columns of the input from which it is computed. A run is a job with
    the name of the pipeline. A run that continues on a checkpoint is a further run of the job.

    The standard variables configure it: `OPENLINEAGE_URL`, `OPENLINEAGE_API_KEY`, `OPENLINEAGE_CONFIG`,
    `OPENLINEAGE__TRANSPORT__...`, `OPENLINEAGE_DISABLED`; `OPENLINEAGE_NAMESPACE` is the namespace of the job (by
    default `default`), and `OPENLINEAGE_PARENT_ID` names a parent as `namespace/job/run`, such as the task of a
    scheduler. Needs OpenLineage's client, from the extra `openlineage`.

    Sources and sinks that only exist in the process, such as `bl.Rows` and `bl.Memory`, are no datasets. A class of
    your own names its datasets by a method `datasets()`, which returns pairs of a namespace and a name. Without it a
    file is named by `path`, and anything else by the namespace of the job and `pipeline.step`.

    Args:
        client: The client, which stays open. By default each run has its own, which the environment configures.
        every: The least time between two RUNNING events, a duration.

    Raises:
        ValueError: The duration is not positive.

    Example, with the `plays` of `bl.Collection`:
        >>> import json
        >>> from pathlib import Path
        >>> from openlineage.client import OpenLineageClient
        >>> from openlineage.client.transport.file import FileConfig, FileTransport
        >>> client = OpenLineageClient(transport=FileTransport(FileConfig("events.jsonl", append=True)))
        >>> plays.write("out", bl.CSV("out"))
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(telemetry=bl.observe.OpenLineage(client)))
        >>> [json.loads(line)["eventType"] for line in Path("events.jsonl").read_text().splitlines()]
        ['START', 'COMPLETE']
    """

    client: OpenLineageClient | None = attrs.field(default=None, repr=False)
    every: int = attrs.field(default=Microseconds(60_000_000), converter=microseconds, repr=format_duration)

    @every.validator
    def _positive(self, attribute: attrs.Attribute[int], value: int) -> None:
        if value <= 0:
            raise ValueError(f"OpenLineage: every must be longer than nothing, not {format_duration(value)}")

    def __attrs_post_init__(self) -> None:
        if self.client is None:
            _Client()  # A wrong setting is an error here, before anything runs.

    def exporter(self, run: FollowedRun) -> _Exporter:
        """Returns the exporter of a run that begins."""
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        return _Exporter(run, self.client or _Client(), self.every, namespace, closes=self.client is None)


@attrs.define(eq=False)
class _Exporter:
    """The exporter of a run. `read` and `written`: the number of rows so far, for each source and sink.

    `closes`: the exporter closes the client at the end, because no other run uses it.
    """

    run: FollowedRun
    client: OpenLineageClient
    every: int
    namespace: str
    closes: bool = attrs.field(kw_only=True)
    id: str = attrs.field(factory=lambda: str(generate_new_uuid()))
    read: dict[str, int] = attrs.field(factory=dict)
    written: dict[str, int] = attrs.field(factory=dict)
    last: int = attrs.field(default=0)
    _lineage: dict[str, ColumnLineage] = attrs.field(factory=dict)
    _datasets: _Datasets = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._datasets = _Datasets(self.run.plan, self.namespace)

    def begin(self) -> None:
        self._lineage = column_lineage(self.run.plan)
        self._emit(RunState.START, self.run.started)

    def batch(self, done: FinishedBatch) -> None:
        self._count(done.record)
        if done.ended - self.last >= self.every:
            self._emit(RunState.RUNNING, done.ended)

    def end(self, end: EndOfRun) -> None:
        self._emit(_state(end, self.run), end.at, end.error)
        if self.closes:
            self.client.close(PATIENCE - 1)

    def _count(self, record: BatchRecord) -> None:
        for name, source in record.sources.items():
            self.read[name] = self.read.get(name, 0) + (source.read or 0)
        for name, rows in record.sinks.items():
            self.written[name] = self.written.get(name, 0) + rows

    def _emit(self, state: RunState, at: int, error: BaseException | None = None) -> None:
        # Set before the event is sent, so that after a failure the next event is due as late as after a
        # success.
        self.last = at
        event = RunEvent(
            eventTime=datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds"),
            eventType=state,
            producer=PRODUCER,
            run=Run(self.id, self._run_facets(error)),
            job=Job(self.namespace, self.run.plan.name, self._job_facets()),
            inputs=[*self._inputs()],
            outputs=[*self._outputs()],
        )
        self.client.emit(event)

    def _run_facets(self, error: BaseException | None) -> dict[str, Any]:
        package = _PACKAGES[self.run.engine]
        engine = processing_engine_run.ProcessingEngineRunFacet(
            installed(package), package.removeprefix("py"), version(), producer=PRODUCER
        )
        facets: dict[str, Any] = {"processing_engine": engine}
        if (parent := _parent()) is not None:
            facets["parent"] = parent
        if error is not None:
            text = without_secrets(f"{type(error).__name__}: {error}")
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "PYTHON", producer=PRODUCER)
        return facets

    def _job_facets(self) -> dict[str, Any]:
        kind = "STREAMING" if self.run.endless else "BATCH"
        return {"jobType": job_type_job.JobTypeJobFacet(kind, "BEAMLIKE", jobType="JOB", producer=PRODUCER)}

    def _inputs(self) -> Iterable[InputDataset]:
        for source in _sources(self.run.plan).values():
            facets = {"schema": _schema(source.raw)}
            found = self._datasets.of(source.name)
            rows = self.read.get(source.name, 0)
            # If one source reads several datasets, their rows are not counted separately.
            counted = {"inputStatistics": _read(rows)} if len(found) == 1 else {}
            for namespace, name in found:
                yield InputDataset(namespace, name, facets=facets, inputFacets=counted)

    def _outputs(self) -> Iterable[OutputDataset]:
        for sink in self.run.plan.sinks.values():
            lineage = self._lineage.get(sink.name)
            facets: dict[str, Any] = {"schema": _schema(output_schema(sink.schema))}
            if lineage is not None:
                facets["columnLineage"] = self._columns(lineage)
            counted = {"outputStatistics": _written(self.written.get(sink.name, 0))}
            for namespace, name in self._datasets.of(sink.name, of_sink=True):
                yield OutputDataset(namespace, name, facets=facets, outputFacets=counted)

    def _columns(self, lineage: ColumnLineage) -> Any:
        fields = {
            column: column_lineage_dataset.Fields([*self._fields(found)])
            for column, found in lineage.columns.items()
            if any(self._datasets.of(one.source) for one in found)
        }
        return column_lineage_dataset.ColumnLineageDatasetFacet(
            fields, dataset=[*self._fields(lineage.rows)], producer=PRODUCER
        )

    def _fields(self, found: Iterable[SourceColumn]) -> Iterable[Any]:
        """Yields the columns of datasets, each once, with all of its uses."""
        uses: dict[tuple[str, str, str], list[str]] = {}
        for one in found:
            for namespace, name in self._datasets.of(one.source):
                uses.setdefault((namespace, name, one.column), []).append(one.use)
        for place, names in uses.items():
            transformations = [
                column_lineage_dataset.Transformation("DIRECT" if use in _DIRECT else "INDIRECT", use)
                for use in dict.fromkeys(names)
            ]
            yield column_lineage_dataset.InputField(*place, transformations)


@attrs.define(eq=False)
class _Datasets:
    """The datasets of the sources and sinks of a plan. Each source or sink is asked for its datasets only once."""

    plan: Plan
    namespace: str
    _known: dict[tuple[str, bool], list[Dataset]] = attrs.field(factory=dict)

    def of(self, name: str, *, of_sink: bool = False) -> list[Dataset]:
        """Returns the datasets of a source or sink."""
        if (name, of_sink) not in self._known:
            thing = self.plan.sinks[name].sink if of_sink else _sources(self.plan)[name].source
            found = datasets_of(thing)
            unnamed = (self.namespace, f"{self.plan.name}.{name}")
            self._known[name, of_sink] = [unnamed] if found is None else [*found]
        return self._known[name, of_sink]


def _sources(plan: Plan) -> Mapping[str, SourcePlan]:
    """Returns the sources of a plan, including those that only lookup tables read."""
    tables = {source.name: source for table in plan.tables.values() for source in table.sources}
    return {**tables, **plan.sources}


def _schema(schema: Mapping[str, Any]) -> Any:
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name, type_name(dtype)) for name, dtype in schema.items()
    ]
    return schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)


def _read(rows: int) -> Any:
    return input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows, producer=PRODUCER)


def _written(rows: int) -> Any:
    return output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=rows, producer=PRODUCER
    )


def _state(end: EndOfRun, run: FollowedRun) -> RunState:
    if end.ending == "stopped":
        # A run without an end can only be stopped, so that counts as complete, unless a batch is unfinished.
        return RunState.COMPLETE if run.endless and end.unfinished is None else RunState.ABORT
    return RunState.FAIL if end.ending == "failed" else RunState.COMPLETE


def _parent() -> Any:
    """Returns the parent that the environment names as `namespace/job/run`. The name of the job may contain slashes."""
    namespace, _, rest = os.environ.get("OPENLINEAGE_PARENT_ID", "").partition("/")
    job, _, run = rest.rpartition("/")
    if not (namespace and job and run):
        return None
    return parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job(namespace, job), producer=PRODUCER)
