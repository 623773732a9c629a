"""The phases that convert a Beam pipeline to fused stages: Beam's own, and three of this runner."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.portability.fn_api_runner.translations import create_buffer_id, only_element
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms.core import DoFnInfo
from apache_beam.utils import proto_utils

COLUMNS: Final = "beamlike:transform:columns:v1"
"""The URN of a part of a pipeline in this package's own interface."""
STREAM: Final = "stream"
"""The kind of the buffers that contain the elements of a TestStream, or of a source of this engine."""
READ: Final = "beamlike:transform:read:v1"
"""The URN of the transform that reads a source of this engine."""


def optimized(pipeline: Any, *, drain: bool) -> Any:
    """Returns (context, fused stages in topological order) of a pipeline proto."""
    primitives = common_urns.primitives
    return translations.create_and_optimize_stages(
        copy.deepcopy(pipeline),
        phases=[
            translations.annotate_downstream_side_inputs,
            translations.fix_side_input_pcoll_coders,
            translations.pack_combiners,
            lift_combiners,
            translations.expand_sdf,
            translations.expand_gbk,
            expand_columns,
            streams_to_input,
            separate_waiting,
            translations.sink_flattens,
            translations.greedily_fuse,
            translations.read_to_impulse,
            translations.impulse_to_input,
            translations.sort_stages,
            translations.add_impulse_to_dangling_transforms,
            translations.setup_timer_mapping,
            translations.populate_data_channel_coders,
        ],
        known_runner_urns=frozenset(
            [primitives.FLATTEN.urn, primitives.GROUP_BY_KEY.urn, primitives.TEST_STREAM.urn, READ, COLUMNS]
        ),
        use_state_iterables=False,
        is_drain=drain,
    )


def payload_of(transform: Any) -> Any | None:
    """Returns the payload of a ParDo; None for another transform."""
    if transform.spec.urn not in translations.PAR_DO_URNS:
        return None
    return proto_utils.parse_Bytes(transform.spec.payload, beam_protos.ParDoPayload)


def stateful_payload(transform: Any) -> Any | None:
    """Returns the payload of a ParDo that has state or timers; None for another transform."""
    payload = payload_of(transform)
    return payload if payload and (payload.state_specs or payload.timer_family_specs) else None


def is_splittable(transform: Any) -> bool:
    """True if a transform processes the elements of a splittable DoFn, whose input can have a rest."""
    urn: str = common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn
    return bool(transform.spec.urn == urn)


def is_endless(payload: Any) -> bool:
    """True if the splittable DoFn of a ParDo is declared with `@DoFn.unbounded_per_element()`."""
    data = DoFnInfo.from_runner_api(payload.do_fn, None).serialized_dofn_data()
    fn, *_ = pickler.loads(data)
    return bool(getattr(fn.process, "unbounded_per_element", False))


def expand_columns(stages: Any, context: Any) -> Iterator[Any]:
    """Replaces a part in columns by a write of a buffer and a read, like a grouping."""
    for stage in stages:
        transform = stage.transforms[0]
        if transform.spec.urn != COLUMNS:
            yield stage
            continue
        source, target = only_element(transform.inputs.values()), only_element(transform.outputs.values())
        for collection in (source, target):
            context.length_prefix_pcoll_coders(collection)
        name, buffer = transform.unique_name, create_buffer_id(stage.name, kind="group")
        write = _write(name + "/Write", source, buffer, stage)
        yield write
        follows = translations.union(frozenset([write]), stage.must_follow)
        yield _read(name + "/Read", target, buffer, stage, follows)


def streams_to_input(stages: Any, context: Any) -> Iterator[Any]:
    """Replaces a TestStream, or a source of this engine, by a read of a buffer for each output."""
    for stage in stages:
        transform = stage.transforms[0]
        if transform.spec.urn not in (common_urns.primitives.TEST_STREAM.urn, READ):
            yield stage
            continue
        for tag, collection in transform.outputs.items():
            context.length_prefix_pcoll_coders(collection)
            name, buffer = f"{transform.unique_name}/{tag}/Read", create_buffer_id(collection, STREAM)
            yield _read(name, collection, buffer, stage, stage.must_follow)


def separate_waiting(stages: Any, context: Any) -> Iterator[Any]:
    """Separates a ParDo with state, timers or side inputs from the transforms before it: it begins a fused stage.

    The elements that arrive at the stage then have the key of the state, and the windows that decide how long they wait
    for a side input.
    """
    for stage in stages:
        transform = stage.transforms[0]
        payload = payload_of(transform)
        if payload is not None and (stateful_payload(transform) or payload.side_inputs):
            yield from _separated(stage, transform, payload, context)
        yield stage


def _separated(stage: Any, transform: Any, payload: Any, context: Any) -> Iterator[Any]:
    """Yields a write and a read before a stage, whose transform then reads a collection of its own."""
    (tag,) = set(transform.inputs) - set(payload.side_inputs)
    source, collections = transform.inputs[tag], context.components.pcollections
    target = translations.unique_name(collections, source + "_keyed")
    collections[target].CopyFrom(collections[source])
    transform.inputs[tag] = target
    for collection in (source, target):
        context.length_prefix_pcoll_coders(collection)
    name = transform.unique_name + "/Keyed"
    buffer = create_buffer_id(name)
    write = _write(name + "/Write", source, buffer, stage)
    yield write
    yield _read(
        name + "/Read", target, buffer, stage, translations.union(frozenset([write]), stage.must_follow)
    )


def _read(name: str, collection: str, buffer: bytes, stage: Any, must_follow: Any) -> Any:
    spec = beam_protos.FunctionSpec(urn=bundle_processor.DATA_INPUT_URN, payload=buffer)
    transform = beam_protos.PTransform(unique_name=name, outputs={"out": collection}, spec=spec)
    return translations.Stage(
        name, [transform], downstream_side_inputs=stage.downstream_side_inputs, must_follow=must_follow
    )


def _write(name: str, collection: str, buffer: bytes, stage: Any) -> Any:
    spec = beam_protos.FunctionSpec(urn=bundle_processor.DATA_OUTPUT_URN, payload=buffer)
    transform = beam_protos.PTransform(unique_name=name, inputs={"in": collection}, spec=spec)
    return translations.Stage(
        name, [transform], downstream_side_inputs=frozenset(), must_follow=stage.must_follow
    )


def lift_combiners(stages: Any, context: Any) -> Iterator[Any]:
    """Combines before a grouping, as Beam does, except where this would change times.

    If windows merge, each element is alone in its window before the grouping. If panes have the earliest time, only
    the grouping knows which elements hold the watermark.
    """
    for stage in stages:
        transform = stage.transforms[0]
        if transform.spec.urn == common_urns.composites.COMBINE_PER_KEY.urn:
            collection = context.components.pcollections[only_element(transform.inputs.values())]
            strategy = context.components.windowing_strategies[collection.windowing_strategy_id]
            merges = strategy.merge_status == beam_protos.MergeStatus.NEEDS_MERGE
            if merges or strategy.output_time == beam_protos.OutputTime.EARLIEST_IN_PANE:
                yield from _without_lifting(stage, strategy, context)
                continue
        yield from translations.lift_combiners([stage], context)


def _without_lifting(stage: Any, strategy: Any, context: Any) -> list[Any]:
    """Applies Beam's phase to a combiner with a trigger for which the phase does not combine early."""
    trigger = beam_protos.Trigger()
    trigger.CopyFrom(strategy.trigger)
    strategy.trigger.element_count.element_count = 2
    stages = list(translations.lift_combiners([stage], context))
    strategy.trigger.CopyFrom(trigger)
    return stages
