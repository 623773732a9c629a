"""The side inputs whose windows may fire more than once. Each firing of a window and key replaces the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs
from apache_beam.portability import common_urns

from beamlike.beam.phases import payload_of

_GROUP = common_urns.primitives.GROUP_BY_KEY.urn
_RESHUFFLE = common_urns.composites.RESHUFFLE.urn
_ONCE = (None, "default", "never")
"""The kinds of triggers that fire at the end of a window, or not at all."""
_WINDOWS = common_urns.primitives.ASSIGN_WINDOWS.urn


@attrs.frozen
class Passed:
    """A transform between a grouping and a side, after which the firing of an element is not known."""

    label: str
    why: str


def fired_sides(pipeline: Any) -> frozenset[str]:
    """Returns the collections of a pipeline proto that are sides, and that a grouping emits more than once.

    Raises `NotImplementedError` if the firing of an element would not be known at the side.
    """
    return frozenset(
        collection
        for transform in pipeline.components.transforms.values()
        if (payload := payload_of(transform)) is not None and not transform.subtransforms
        for tag in payload.side_inputs
        if _is_fired(collection := transform.inputs[tag], transform, pipeline.components)
    )


def sides_change(pipeline: Any) -> bool:
    """True if a side of a pipeline proto may be read before all of its elements have arrived."""
    components = pipeline.components
    payloads = ((each, payload_of(each)) for each in components.transforms.values())
    sides = [each.inputs[tag] for each, payload in payloads if payload for tag in payload.side_inputs]
    strategies = (components.pcollections[side].windowing_strategy_id for side in sides)
    triggers = (components.windowing_strategies[each].trigger.WhichOneof("trigger") for each in strategies)
    return any(trigger not in _ONCE for trigger in triggers)


def _is_fired(side: str, reader: Any, components: Any) -> bool:
    found = False
    for group, passed in _groupings(side, components):
        if not _may_fire_again(group, components):
            continue
        if passed is not None:
            raise NotImplementedError(
                f"BeamlikeRunner cannot run {reader.unique_name!r}: {group.unique_name!r} may fire more than once, "
                f"and {passed.label!r}, which {passed.why}, is between it and this side input, so that the newest "
                "firing is not known there; read the side before that transform, or let the grouping fire once"
            )
        found = True
    return found


def _groupings(side: str, components: Any) -> Iterator[tuple[Any, Passed | None]]:
    """Yields the last groupings before a side, each with a transform that forgets which firing elements are from."""
    transforms = components.transforms
    leaves = [each for each in transforms.values() if not each.subtransforms]
    writers = {collection: leaf for leaf in leaves for collection in leaf.outputs.values()}
    shuffles = {
        part
        for each in transforms.values()
        if each.spec.urn == _RESHUFFLE
        for part in _parts(each, transforms)
    }
    left, seen = deque[tuple[str, Passed | None]]([(side, None)]), set[str]()
    while left:
        collection, passed = left.popleft()
        writer = writers.get(collection)
        if collection in seen or writer is None:
            continue
        seen.add(collection)
        if writer.spec.urn == _GROUP and writer.unique_name not in shuffles:
            yield writer, passed
        elif writer.spec.urn != _WINDOWS:  # elements in new windows are from no firing
            passed = passed or _forgets(writer, shuffles)
            left += [(each, passed) for each in _main_inputs(writer)]


def _parts(transform: Any, transforms: Mapping[str, Any]) -> Iterator[str]:
    """Yields the labels of the transforms in a composite transform."""
    yield transform.unique_name
    yield from (each for part in transform.subtransforms for each in _parts(transforms[part], transforms))


def _main_inputs(transform: Any) -> list[str]:
    payload = payload_of(transform)
    sides = set(payload.side_inputs) if payload is not None else set()
    return [collection for tag, collection in transform.inputs.items() if tag not in sides]


def _forgets(transform: Any, shuffles: set[str]) -> Passed | None:
    passed, payload = partial(Passed, transform.unique_name), payload_of(transform)
    if transform.unique_name in shuffles and transform.spec.urn == _GROUP:
        return passed("reshuffles")
    if payload is None:
        return None
    if payload.state_specs or payload.timer_family_specs:
        return passed("has state or timers")
    if payload.restriction_coder_id:
        return passed("is splittable")
    return passed("reads side inputs") if payload.side_inputs else None


def _may_fire_again(group: Any, components: Any) -> bool:
    """True if a window of a grouping may emit more than one pane."""
    (collection,) = group.inputs.values()
    strategy = components.windowing_strategies[components.pcollections[collection].windowing_strategy_id]
    trigger = strategy.trigger
    match trigger.WhichOneof("trigger"):
        case kind if kind in _ONCE:
            once = True
        case "after_end_of_window":
            end = trigger.after_end_of_window
            once = not end.HasField("early_firings") and not end.HasField("late_firings")
        case _:
            once = False
    return not once or strategy.allowed_lateness > 0
