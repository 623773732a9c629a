"""The fused stages of a pipeline as bytes, from which each process constructs the nodes that it needs."""

from __future__ import annotations

import hashlib
import marshal
import threading
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.portability.fn_api_runner.worker_handlers import WorkerHandlerManager

from beamlike.beam.bundles import tell_worker
from beamlike.beam.checkpoint import NoCheckpoint
from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import Context, Residual, StageNode
from beamlike.beam.read import encoded_rows
from beamlike.beam.run import Run, inputs_of
from beamlike.beam.sided import SidedNode
from beamlike.beam.splits import LONGEST
from beamlike.beam.stateful import StatefulNode, alone
from beamlike.beam.strategies import end_of
from beamlike.io.refreshed import Clock, wall_clock

METRICS: Final = b"metrics"
"""The buffer of the metrics of bundles, which are rows like elements."""
_KEPT: Final = 8
"""The number of pipelines whose nodes a process keeps."""

Written = list[tuple[bytes, bytes]]
"""Output: pairs of a buffer and encoded elements."""


class Worker:
    """The nodes of a pipeline in this process, with Beam's worker. Only one thread uses them at a time."""

    def __init__(self, content: bytes) -> None:
        held = marshal.loads(content)
        components = beam_protos.Components.FromString(held["components"])
        stages, runner = [_stage(*each) for each in held["stages"]], fn_runner.FnApiRunner()
        inputs = {stage.name: inputs_of(stage) for stage in stages}
        tell_worker(runner, held["experiments"])
        self.handlers = WorkerHandlerManager(components.environments, runner._provision_info)
        context = Context(stages, self.handlers, components, held["safe_coders"], held["data_coders"], 1)
        context.setup()
        self.run = Run(runner, context, self.handlers, [], NoCheckpoint())
        self.run.build(stages, inputs)
        self.nodes = {node.key: node for node in self.run.nodes if isinstance(node, StageNode)}
        for node in self.nodes.values():  # a source of the plan has the element of the Impulse
            node.pending = {name: [] for name in node.inputs}
        self.lock = threading.RLock()

    def process(self, stage: str, name: str, chunks: list[bytes]) -> Written:
        """Processes elements of an input of a fused stage. Returns output and metrics."""
        return self.run.bundles.process(self.nodes[stage], {name: chunks}, {}) + self.metrics(stage)

    def advance(
        self, stage: str, elements: list[bytes], now: int | None, output: int
    ) -> tuple[Written, list[Residual]]:
        """Processes elements of a splittable DoFn, and the residuals that need not wait.

        If the DoFn is unbounded per element, residuals are processed for a second at most.

        Args:
            stage: The fused stage that begins with the DoFn.
            elements: Encoded elements.
            now: The processing time (us). None to wait for all residuals by the clock of this machine.
            output: The output watermark (us) of the stage.

        Returns:
            Output with metrics, and the residuals that wait.
        """
        node, ends = self.nodes[stage], time.monotonic() + LONGEST
        (name,) = node.inputs
        clock: Clock = wall_clock if now is None else lambda: now
        self.run.bundles.now, node.output = clock, output
        node.residuals, node.pending, written = [], {name: elements}, Written()
        while node.has_pending or (now is None and node.residuals):
            if node.has_pending:
                data, node.pending = node.pending, {name: []}
                written += self.run.bundles.process(node, data, {})
            if now is None and node.residuals:
                time.sleep(max(0.0, min(node.wakes()) - time.time()))
            if now is None or not node.endless or time.monotonic() < ends:
                node.take_due(clock())
        left, node.residuals = node.residuals, []
        return written + self.metrics(stage), left

    def encoded(self, collection: str, rows: pl.DataFrame) -> bytes:
        """Encodes rows, and their event times (us) if they have some, as elements of a collection."""
        context = self.run.context
        coder = context.pipeline_context.coders[context.data_channel_coders[collection]].get_impl()
        return encoded_rows(coder, rows)

    def divided(self, stage: str, chunks: list[bytes]) -> list[tuple[bytes, bytes, int, int, int]]:
        """Decodes elements to (element in one of its windows, window, its time, end of the window, 1), times in us."""
        node = self.nodes[stage]
        (name,) = node.inputs
        coder, windows = node.manager.get_input_coder_impl(name), node.window_coder
        return [
            (
                alone(coder, element, window),
                windows.encode_nested(window),
                element.timestamp_micros,
                end_of(window),
                1,
            )
            for element in coder.decode_all(b"".join(chunks))
            for window in element.windows
        ]

    def metrics(self, stage: str) -> Written:
        """Removes and returns the metrics of the bundles of a fused stage."""
        infos = self.run.bundles.metrics.pop(stage, [])
        content = marshal.dumps((stage, [info.SerializeToString() for info in infos]))
        return [(METRICS, content)] if infos else []

    def group(self, buffer: bytes) -> GroupNode:
        """Returns the grouping that reads a buffer."""
        node = self.run.groups[buffer]
        assert isinstance(node, GroupNode)
        return node

    def stateful(self, stage: str) -> StatefulNode:
        """Returns a fused stage that has state or timers."""
        node = self.nodes[stage]
        assert isinstance(node, StatefulNode)
        return node

    def sided(self, stage: str) -> StatefulNode | SidedNode:
        """Returns a fused stage that reads sides."""
        node = self.nodes[stage]
        assert isinstance(node, StatefulNode | SidedNode)
        return node


def _stored(stage: Any) -> tuple[str, list[bytes], list[tuple[str, str]], str | None]:
    transforms = [each.SerializeToString(deterministic=True) for each in stage.transforms]
    return stage.name, transforms, sorted(stage.timers), stage.environment


def _stage(
    name: str, transforms: list[bytes], timers: list[tuple[str, str]], environment: str | None
) -> translations.Stage:
    parsed = [beam_protos.PTransform.FromString(each) for each in transforms]
    stage = translations.Stage(name, parsed, environment=environment)
    stage.timers = set(timers)
    return stage


_WORKERS: Final = dict[str, Worker]()
_OPENING: Final = threading.Lock()


@attrs.frozen(slots=False, eq=False, repr=False)
class Job:
    """A pipeline after fusion. A step or an operator of a plan has it, and uses it in the process that executes it.

    `content` is only bytes, since the processes of a cluster have nothing else in common.
    """

    content: bytes

    @classmethod
    def of(cls, context: Any, stages: Iterable[Any], experiments: list[str]) -> Job:
        """Stores fused stages, before a `Context` is created, which changes them."""
        held = {
            "components": context.components.SerializeToString(deterministic=True),
            "stages": [_stored(stage) for stage in stages],
            "safe_coders": dict(context.safe_coders),
            "data_coders": dict(context.data_channel_coders),
            "experiments": experiments,
        }
        return cls(marshal.dumps(held))

    @cached_property
    def digest(self) -> str:
        """The digest of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def worker(self) -> Worker:
        """Returns the worker of this process, which is created when it is used first."""
        with _OPENING:
            if self.digest not in _WORKERS:
                for digest in list(_WORKERS)[: 1 - _KEPT]:
                    _WORKERS.pop(digest).handlers.close_all()
                _WORKERS[self.digest] = Worker(self.content)
            return _WORKERS[self.digest]

    def close(self) -> None:
        """Removes the worker of this process."""
        with _OPENING:
            if (worker := _WORKERS.pop(self.digest, None)) is not None:
                worker.handlers.close_all()

    def __getstate__(self) -> Mapping[str, bytes]:
        return {"content": self.content}

    def __setstate__(self, state: Mapping[str, bytes]) -> None:
        object.__setattr__(self, "content", state["content"])
