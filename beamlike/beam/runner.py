"""The Beam runner."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import WorkerHandlerManager

from beamlike.beam.bundles import tell_worker
from beamlike.beam.checkpoint import Checkpoint, NoCheckpoint
from beamlike.beam.flow import Flow
from beamlike.beam.nodes import Context
from beamlike.beam.options import Chosen, experiments_of
from beamlike.beam.phases import optimized
from beamlike.beam.planned.firings import fired_sides, sides_change
from beamlike.beam.planned.job import Job
from beamlike.beam.planned.play import PlanRunner, Taken, ToItsEnd, play
from beamlike.beam.planned.refused import check
from beamlike.beam.primitives import check_primitives
from beamlike.beam.read import reads_in
from beamlike.beam.recording import Recording
from beamlike.beam.run import Run, inputs_of
from beamlike.beam.streams import streams_of
from beamlike.beam.units import units_of
from beamlike.local.runner import LocalRunner
from beamlike.plan.model import Plan

_FINALIZATION: Final = common_urns.requirements.REQUIRES_BUNDLE_FINALIZATION.urn


class BeamlikeRunner(fn_runner.FnApiRunner):
    """A runner that executes a Beam pipeline on the stages of this engine, in process or on Spark. Experimental.

    Groupings, and the state and timers of DoFns, are stages of the engine. Other transforms run in Beam's own worker.

    Args:
        records: A file for the watermarks and counts of each transform, which `beamlike why`, `watch` and `report`
            read. The pipeline option `--beamlike_records` has the same meaning. By default there are no records.
        checkpoint: A folder on this machine. A run whose process was killed continues from it, if the same pipeline
            runs again. The pipeline option `--beamlike_checkpoint` has the same meaning. By default there is none.
        spark: A `bl.SparkRunner`, which runs the pipeline on Spark, as a plan. A `bl.LocalRunner` runs the same plan in
            this process. Either has a checkpoint and records of its own. The pipeline option `--beamlike_spark` makes a
            `bl.SparkRunner`, for which `--beamlike_checkpoint`, `--beamlike_shards` and `--beamlike_trigger` hold.

    Raises:
        NotImplementedError: By `run`, before any element is processed, if the pipeline needs something that this runner
            does not support. The message names it.
        CheckpointError: By `run`, if the checkpoint is in use, damaged, or of another pipeline.

    Example:
        with beam.Pipeline(runner=BeamlikeRunner()) as pipeline:
            pipeline | beam.Create([1, 2, 3]) | beam.CombineGlobally(sum) | beam.Map(print)
    """

    def __init__(
        self,
        records: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        spark: PlanRunner | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(spark, PlanRunner | None):
            raise TypeError(f"BeamlikeRunner: spark= takes a bl.SparkRunner, not {spark!r}")
        self._given = self._used = Chosen(records, checkpoint, spark)

    def apply(self, transform: Any, input: Any, options: Any) -> Any:
        """Expands a transform. Raises `NotImplementedError` for Beam's transforms for Kafka, which need Java."""
        kind = type(transform)
        if kind.__module__ == "apache_beam.io.kafka":
            raise NotImplementedError(
                f"BeamlikeRunner cannot run {kind.__module__}.{kind.__name__}, which needs a service in Java; "
                f"beamlike.beam.kafka.{kind.__name__} has arguments of the same names, and needs none"
            )
        return super().apply(transform, input, options)

    def run_via_runner_api(self, pipeline_proto: Any, options: Any) -> Any:
        """Runs a pipeline proto."""
        self._used = self._given.with_options(options)
        # A process of Spark keeps its worker between runs, and a side may then differ.
        uncached = self._used.spark is not None or sides_change(pipeline_proto)
        self._experiments = experiments_of(options, uncached=uncached)
        return super().run_via_runner_api(pipeline_proto, options)

    def _check_requirements(self, pipeline_proto: Any) -> None:
        check_primitives(pipeline_proto)
        supported = set(self.supported_requirements())
        for requirement in pipeline_proto.requirements:
            if requirement not in supported:
                raise NotImplementedError(f"BeamlikeRunner does not support the requirement {requirement!r}")
            if requirement == _FINALIZATION and self._used.checkpoint is not None:
                raise NotImplementedError(
                    f"BeamlikeRunner with a checkpoint does not support the requirement {requirement!r}: a bundle "
                    "would be finalized before its state is in the checkpoint"
                )
        for stream in streams_of(pipeline_proto):
            payload = beam_protos.TestStreamPayload.FromString(stream.spec.payload)
            if payload.HasField("endpoint") and payload.endpoint.url:
                raise NotImplementedError(
                    f"BeamlikeRunner plays a TestStream with events, and {stream.unique_name!r} reads "
                    "them from a service"
                )
            for transform in reads_in(pipeline_proto):
                raise NotImplementedError(
                    f"BeamlikeRunner cannot run {transform.unique_name!r}: the pipeline has a TestStream, which sets "
                    "the time of all sources"
                )
        self._fired = fired_sides(pipeline_proto)
        if self._used.spark is not None or self._fired:
            check(pipeline_proto, fired=self._used.spark is None)

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Returns Beam's context and the fused stages of a pipeline."""
        self._pipeline, self._streams = pipeline_proto, streams_of(pipeline_proto)
        self._reads = reads_in(pipeline_proto)
        self._units = [] if self._used.records is None else units_of(pipeline_proto)
        return optimized(pipeline_proto, drain=self._is_drain)

    def run_stages(self, stage_context: Any, stages: list[Any]) -> Any:
        """Runs fused stages to the end of their input."""
        if (planned := self._used.spark or self._for_firings()) is not None:
            job = Job.of(stage_context, stages, self._experiments)
            return play(planned, job, self._pipeline, self._fired)
        inputs, flow = {stage.name: inputs_of(stage) for stage in stages}, Flow.of(stages)
        tell_worker(self, self._experiments)
        handlers = WorkerHandlerManager(stage_context.components.environments, self._provision_info)
        try:
            context = Context(
                stages,
                handlers,
                stage_context.components,
                stage_context.safe_coders,
                stage_context.data_channel_coders,
                1,
                split_managers=self._split_managers,
            )
            context.setup()
            with _opened(self._used.checkpoint) as checkpoint, ExitStack() as held:
                run = Run(self, context, handlers, self._streams, checkpoint)
                run.read(self._reads, held)
                run.build(stages, inputs)
                recording = Recording(self._used.records, run, self._units, flow)
                return recording.follow(run.play)
        finally:
            handlers.close_all()

    def _for_firings(self) -> PlanRunner | None:
        """Returns the runner in process of a pipeline that needs a plan: one with sides that may fire again."""
        if not self._fired:
            return None
        used = self._used
        kept = None if used.checkpoint is None else os.fspath(used.checkpoint)
        return ToItsEnd(
            LocalRunner(records=used.records, checkpoint=kept, drain=kept is not None, quiet=True)
        )


def _opened(path: str | os.PathLike[str] | None) -> AbstractContextManager[NoCheckpoint]:
    return nullcontext(NoCheckpoint()) if path is None else Checkpoint.opened(path)


def plan(pipeline: Any) -> Plan:
    """Returns the plan of a Beam pipeline, with which `bl.savepoint.restore` continues a run. Experimental.

    Args:
        pipeline: A `beam.Pipeline`. It does not run.

    Raises:
        NotImplementedError: The pipeline cannot be executed as a plan.

    Example:
        >>> bl.savepoint.restore("savepoint", "checkpoint-5", beamlike.beam.plan(pipeline))  # doctest: +SKIP
    """
    taken = Taken()
    BeamlikeRunner(spark=taken).run_pipeline(pipeline, pipeline.options)
    assert taken.plan is not None
    return taken.plan
