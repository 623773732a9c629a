"""The processing of bundles by Beam's worker, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apache_beam.metrics.monitoring_infos import consolidate
from apache_beam.portability.api import metrics_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner.execution import ListBuffer

from beamlike.beam.nodes import Context, StageNode


class Bundles:
    """Processes bundles of fused stages.

    Attributes:
        metrics: The monitoring infos of each fused stage by the key of its node.
    """

    def __init__(self, runner: Any, context: Context, handlers: Any) -> None:
        self.runner, self.context, self.handlers = runner, context, handlers
        self.metrics: dict[str, list[Any]] = {}
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
        result, splits = bundles.process_bundle(inputs, node.outputs, timers, manager.stage_timer_outputs)
        self._meter(node.key, result.process_bundle.monitoring_infos)
        self._defer(node, result, splits, inputs)
        return self._written(node)

    def _written(self, node: StageNode) -> list[tuple[bytes, bytes]]:
        written = list[tuple[bytes, bytes]]()
        for buffer in dict.fromkeys(node.outputs.values()):
            chunks = self.context.pcoll_buffers.pop(buffer, None) or ()
            written += [(buffer, bytes(chunk)) for chunk in chunks if chunk]
        return written

    def _defer(self, node: StageNode, result: Any, splits: Any, inputs: Mapping[str, Any]) -> None:
        """Stores the residuals of splittable functions as pending elements."""
        deferred = dict[str, Any]()
        residuals = list(result.process_bundle.residual_roots)
        self.runner._add_sdk_delayed_applications_to_deferred_inputs(node.manager, result, deferred)
        self.runner._add_residuals_and_channel_splits_to_deferred_inputs(
            splits, node.manager, inputs, deferred
        )
        node.deferred_hold, node.not_before = None, 0.0
        for name, buffer in deferred.items():
            node.pending[name] += list(buffer)
        if deferred:
            node.defer(residuals)

    def _meter(self, name: str, infos: Iterable[Any]) -> None:
        known = self.metrics.get(name)
        self.metrics[name] = list(infos if known is None else consolidate([*infos, *known]))


def _buffer(coder: Any, chunks: Iterable[bytes]) -> Any:
    buffer = ListBuffer(coder)
    for chunk in chunks:
        buffer.append(chunk)
    return buffer
