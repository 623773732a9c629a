"""Runs the plan of a Beam pipeline with a runner of this engine."""

from __future__ import annotations

import marshal
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import attrs
from apache_beam.metrics.monitoring_infos import consolidate
from apache_beam.portability.api import metrics_pb2
from apache_beam.runners import runner as beam_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner

from beamlike.beam.cells import DATA
from beamlike.beam.planned.build import PlanBuilder
from beamlike.beam.planned.job import Job
from beamlike.beam.read import reads_of
from beamlike.beam.streams import streams_of
from beamlike.io.memory import Memory
from beamlike.plan.model import Plan
from beamlike.runtime.run.checkpoint import Drained


@runtime_checkable
class PlanRunner(Protocol):
    """A runner of plans: `bl.SparkRunner`, or `bl.LocalRunner`."""

    @property
    def checkpoint(self) -> Any:
        """The folder from which a run continues."""

    @property
    def trigger(self) -> Any:
        """The interval between batches."""

    def run(self, plan: Plan) -> Any:
        """Runs a plan to its end."""


@attrs.define
class Taken:
    """A runner that takes a plan, and does not run it."""

    plan: Plan | None = None
    checkpoint: Any = None
    trigger: Any = None

    def run(self, plan: Plan) -> None:
        self.plan = plan


@attrs.frozen
class ToItsEnd:
    """A runner of plans whose runs do nothing after the run of their checkpoint has ended."""

    runner: PlanRunner

    @property
    def checkpoint(self) -> Any:
        return self.runner.checkpoint

    @property
    def trigger(self) -> Any:
        return self.runner.trigger

    def run(self, plan: Plan) -> None:
        with suppress(Drained):
            self.runner.run(plan)


def play(runner: PlanRunner, job: Job, pipeline: Any, fired: frozenset[str]) -> Any:
    """Runs a job, which is of a pipeline proto, with a runner of plans, and returns Beam's result.

    `fired` are the collections of sides whose firings replace each other.
    """
    metrics = Memory()
    try:
        runner.run(PlanBuilder(job, streams_of(pipeline), reads_of(pipeline), fired).plan(metrics))
    finally:
        job.close()
    return fn_runner.RunnerResult(beam_runner.PipelineState.DONE, _infos(metrics))


def _infos(metrics: Memory) -> dict[str, list[Any]]:
    """Returns the monitoring infos of each fused stage."""
    found = dict[str, list[Any]]()
    for content in metrics.frame()[DATA] if metrics.has_run else ():
        stage, infos = marshal.loads(content)
        found.setdefault(stage, []).extend(map(metrics_pb2.MonitoringInfo.FromString, infos))
    return {stage: list(consolidate(infos)) for stage, infos in found.items()}
