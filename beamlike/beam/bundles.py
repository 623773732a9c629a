"""The processing of bundles by Beam's worker, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from apache_beam.metrics.monitoring_infos import consolidate
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.portability.api import beam_fn_api_pb2 as fn_protos
from apache_beam.portability.api import metrics_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.execution import ListBuffer

from beamlike.beam.nodes import Context, Residual, StageNode
from beamlike.beam.splits import split_if_long
from beamlike.io.refreshed import Clock, wall_clock
from windowing.time import MAX_TIME


class Bundles:
    """Processes bundles of fused stages.

    Attributes:
        metrics: The monitoring infos of each fused stage by the key of its node.
        now: Returns the processing time (us) from which the delays of residuals count.
    """

    def __init__(self, runner: Any, context: Context, handlers: Any) -> None:
        self.runner, self.context, self.handlers = runner, context, handlers
        self.metrics: dict[str, list[Any]] = {}
        self.now: Clock = wall_clock
        self.options = {"experiments": [*_told(runner).get_or_create_list("experiments")]}
        # All bundles share one generator of cache tokens. A new generator would begin with the first token again, and
        # the worker would return state from its cache that the engine has changed since.
        self.tokens = fn_runner.FnApiRunner.get_cache_token_generator(static=False)

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains: the metrics."""
        for name, infos in self.metrics.items():
            yield name, [info.SerializeToString(deterministic=True) for info in infos]

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        read = metrics_pb2.MonitoringInfo.FromString
        self.metrics = {name: [read(info) for info in infos] for name, infos in saved.items()}

    def process(
        self, node: StageNode, data: Mapping[str, Iterable[bytes]], timers: Mapping[Any, Any]
    ) -> list[tuple[bytes, bytes]]:
        """Processes elements and timers. Returns the output as (buffer, encoded elements)."""
        RuntimeValueProvider.set_runtime_options(self.options)
        manager = node.manager
        self.handlers.register_process_bundle_descriptor(manager.process_bundle_descriptor)
        bundles = fn_runner.BundleManager(
            manager,
            self.runner._progress_frequency,
            split_managers=manager.split_managers,
            cache_token_generator=self.tokens,
        )
        inputs = {
            name: _buffer(manager.get_input_coder_impl(name), data.get(name, ())) for name in node.inputs
        }
        with self._watched(node) as asked:
            result, splits = bundles.process_bundle(inputs, node.outputs, timers, manager.stage_timer_outputs)
        self._meter(node.key, result.process_bundle.monitoring_infos)
        self._defer(node, result.process_bundle.residual_roots, [*splits, *asked], inputs)
        return self._written(node)

    def _watched(self, node: StageNode) -> AbstractContextManager[list[Any]]:
        """Returns a context manager that splits the bundle of a splittable DoFn if it takes long."""
        if not node.splittable:
            return nullcontext([])
        (handler, *_) = node.manager.worker_handlers
        return split_if_long(handler, node.inputs)

    def _written(self, node: StageNode) -> list[tuple[bytes, bytes]]:
        written = list[tuple[bytes, bytes]]()
        for buffer in dict.fromkeys(node.outputs.values()):
            chunks = self.context.pcoll_buffers.pop(buffer, None) or ()
            written += [(buffer, bytes(chunk)) for chunk in chunks if chunk]
        return written

    def _defer(
        self, node: StageNode, roots: Iterable[Any], splits: Iterable[Any], inputs: Mapping[str, Any]
    ) -> None:
        """Stores the residuals of splittable functions, and the elements that splits have left unprocessed."""
        now = self.now()
        for root in (*roots, *(root for split in splits for root in split.residual_roots)):
            name = node.manager.input_for(root.application.transform_id, root.application.input_id)
            marks = [mark.ToMicroseconds() for mark in root.application.output_watermarks.values()]
            # A residual whose watermark is at the end of time must be processed, too.
            hold = min(min(marks, default=node.output), MAX_TIME - 1)
            due = now + root.requested_time_delay.ToMicroseconds()
            node.residuals.append(Residual(name, root.application.element, hold, due))
        left, own = dict[str, Any](), fn_protos.ProcessBundleSplitResponse
        channels = [own(channel_splits=split.channel_splits) for split in splits]
        self.runner._add_residuals_and_channel_splits_to_deferred_inputs(channels, node.manager, inputs, left)
        for name, buffer in left.items():
            node.residuals += [Residual(name, bytes(chunk), node.output, now) for chunk in buffer]

    def _meter(self, name: str, infos: Iterable[Any]) -> None:
        known = self.metrics.get(name)
        self.metrics[name] = list(infos if known is None else consolidate([*infos, *known]))


def tell_worker(runner: Any, experiments: Iterable[str]) -> None:
    """Sets the experiments that the worker of a runner has, in this process or in another."""
    _told(runner).update({"experiments": list(experiments)})


def _told(runner: Any) -> Any:
    """Returns the pipeline options that the worker of a runner has, as a struct."""
    return runner._provision_info.provision_info.pipeline_options


def _buffer(coder: Any, chunks: Iterable[bytes]) -> Any:
    buffer = ListBuffer(coder)
    for chunk in chunks:
        buffer.append(chunk)
    return buffer
