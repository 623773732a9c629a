"""The Beam runner."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import attrs
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import WorkerHandlerManager

from beamlike.beam.checkpoint import Checkpoint, NoCheckpoint
from beamlike.beam.flow import Flow
from beamlike.beam.nodes import Context
from beamlike.beam.phases import optimized
from beamlike.beam.recording import Recording
from beamlike.beam.run import Run, inputs_of
from beamlike.beam.streams import streams_of
from beamlike.beam.units import units_of

_FINALIZATION: Final = common_urns.requirements.REQUIRES_BUNDLE_FINALIZATION.urn


@attrs.frozen
class Paths:
    """The files of a run."""

    records: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None


class BeamlikeOptions(PipelineOptions):
    """The pipeline options of `BeamlikeRunner`."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--beamlike_records", help="a file for the records of the run")
        parser.add_argument("--beamlike_checkpoint", help="a folder from which a run continues")


class BeamlikeRunner(fn_runner.FnApiRunner):
    """A runner that executes a Beam pipeline in process, on the stages of this engine. Experimental.

    Groupings, and the state and timers of DoFns, are stages of the engine. Other transforms run in Beam's own worker.

    Args:
        records: A file for the watermarks and counts of each transform, which `beamlike why`, `watch` and `report`
            read. The pipeline option `--beamlike_records` has the same meaning. By default there are no records.
        checkpoint: A folder on this machine. A run whose process was killed continues from it, if the same pipeline
            runs again. The pipeline option `--beamlike_checkpoint` has the same meaning. By default there is none.

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
    ) -> None:
        super().__init__()
        self.records, self.checkpoint = records, checkpoint
        self._used = Paths(records, checkpoint)

    def run_via_runner_api(self, pipeline_proto: Any, options: Any) -> Any:
        """Runs a pipeline proto."""
        asked = options.view_as(BeamlikeOptions)
        self._used = Paths(
            asked.beamlike_records if self.records is None else self.records,
            asked.beamlike_checkpoint if self.checkpoint is None else self.checkpoint,
        )
        return super().run_via_runner_api(pipeline_proto, options)

    def _check_requirements(self, pipeline_proto: Any) -> None:
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

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Returns Beam's context and the fused stages of a pipeline."""
        self._streams = streams_of(pipeline_proto)
        self._units = [] if self._used.records is None else units_of(pipeline_proto)
        return optimized(pipeline_proto, drain=self._is_drain)

    def run_stages(self, stage_context: Any, stages: list[Any]) -> Any:
        """Runs fused stages to the end of their input."""
        inputs, flow = {stage.name: inputs_of(stage) for stage in stages}, Flow.of(stages)
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
            with _opened(self._used.checkpoint) as checkpoint:
                run = Run(self, context, handlers, self._streams, checkpoint)
                run.build(stages, inputs)
                recording = Recording(self._used.records, run, self._units, flow)
                return recording.follow(run.play)
        finally:
            handlers.close_all()


def _opened(path: str | os.PathLike[str] | None) -> AbstractContextManager[NoCheckpoint]:
    return nullcontext(NoCheckpoint()) if path is None else Checkpoint.opened(path)
