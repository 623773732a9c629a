"""The units of a Beam pipeline: the transforms that have a line in the records, by their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from apache_beam.portability import common_urns

from beamlike.beam.phases import payload_of, stateful_payload

_GROUP: Final = common_urns.primitives.GROUP_BY_KEY.urn
_RESHUFFLE: Final = common_urns.composites.RESHUFFLE.urn
_WHOLE: Final = frozenset(
    [
        common_urns.composites.COMBINE_GLOBALLY.urn,
        common_urns.composites.COMBINE_PER_KEY.urn,
        _RESHUFFLE,
    ]
)


@attrs.frozen
class Unit:
    """A transform of the user's pipeline that has a line in the records.

    Attributes:
        label: The label of the transform, with those of the transforms that contain it.
        kind: The kind of the transform, such as `pardo`.
        inputs: The collections that it reads, by tag, without its side inputs.
        sides: The collections that it reads as side inputs, by tag.
        outputs: The collections that it writes.
    """

    label: str
    kind: str
    inputs: Mapping[str, str]
    sides: Mapping[str, str]
    outputs: tuple[str, ...]

    @property
    def reads(self) -> dict[str, str]:
        """All collections that the unit reads, by tag."""
        return {**self.inputs, **self.sides}


def units_of(pipeline: Any) -> list[Unit]:
    """Returns the units of a pipeline proto in topological order.

    A composite transform is one unit if its parts have no grouping and no state, or if it is a combination. The parts
    of other composites are units of their own. The grouping of a reshuffle does not count.
    """
    transforms = pipeline.components.transforms
    chosen = [each for root in pipeline.root_transform_ids for each in _chosen(root, transforms)]
    return _sorted([_unit(transforms[name], [*_leaves(name, transforms)]) for name in chosen])


def _chosen(name: str, transforms: Mapping[str, Any]) -> Iterator[str]:
    own = transforms[name]
    is_whole = own.spec.urn in _WHOLE or not _has_state(name, transforms)
    # The root, which contains all transforms of a pipeline, has no kind.
    if own.spec.urn and (is_whole or not own.subtransforms):
        yield name
        return
    for part in own.subtransforms:
        yield from _chosen(part, transforms)


def _leaves(name: str, transforms: Mapping[str, Any]) -> Iterator[Any]:
    own = transforms[name]
    if not own.subtransforms:
        yield own
    for part in own.subtransforms:
        yield from _leaves(part, transforms)


def _has_state(name: str, transforms: Mapping[str, Any]) -> bool:
    """True if a part of the transform can hold the watermark. The grouping of a reshuffle emits at once."""
    own = transforms[name]
    if own.subtransforms:
        return own.spec.urn != _RESHUFFLE and any(_has_state(part, transforms) for part in own.subtransforms)
    return own.spec.urn == _GROUP or stateful_payload(own) is not None


def _unit(own: Any, leaves: list[Any]) -> Unit:
    written = {each for leaf in leaves for each in leaf.outputs.values()}
    inputs, sides = dict[str, str](), dict[str, str]()
    for leaf in leaves:
        payload = payload_of(leaf)
        side_tags = set(payload.side_inputs) if payload else set()
        for tag, collection in leaf.inputs.items():
            if collection not in written:
                (sides if tag in side_tags else inputs)[_unused(tag, leaf, own, inputs, sides)] = collection
    outputs = tuple(dict.fromkeys([*own.outputs.values()] or sorted(written)))
    return Unit(own.unique_name, own.spec.urn.split(":")[-2], inputs, sides, outputs)


def _unused(tag: str, leaf: Any, own: Any, *known: Mapping[str, str]) -> str:
    """Returns the tag, with the name of its transform if another transform of the unit has the same."""
    part = leaf.unique_name.removeprefix(own.unique_name).strip("/")
    return f"{part}.{tag}" if any(tag in tags for tags in known) else tag


def _sorted(units: list[Unit]) -> list[Unit]:
    """Sorts units so that each is after those whose output it reads. Units that only pass their input are removed."""
    left = {unit.label: unit for unit in units if not set(unit.outputs) <= {*unit.reads.values()}}
    missing = {each for unit in left.values() for each in unit.outputs}
    found = list[Unit]()
    while left:
        ready = [unit for unit in left.values() if missing.isdisjoint(unit.reads.values())]
        # Composite transforms can read each other's output. The first of them is then before the others.
        for unit in ready or [next(iter(left.values()))]:
            found.append(left.pop(unit.label))
            missing.difference_update(unit.outputs)
    return found
