"""The fused stages of a Beam pipeline, with the elements that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import attrs
import polars as pl
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.fn_api_runner.execution import ListBuffer
from apache_beam.runners.portability.fn_api_runner.translations import only_element, split_buffer_id

from beamlike.beam.phases import is_endless, is_splittable, payload_of
from beamlike.beam.sides import Bounds, NodeSides, ServedState, bounds_of
from beamlike.beam.strategies import coder_text, lateness_of
from stages.sides.contents import SideContents
from stages.sides.declarations import ROLE_PREFIX
from stages.state.index import HoldOwner
from windowing.time import MAX_TIME, MIN_TIME


def readable(holder: HoldOwner | None, decode: Callable[[bytes], Any]) -> HoldOwner | None:
    """Returns a description of a row of state with its key decoded. A key too long for a description stays as it is."""
    if holder is None or holder.key.endswith("..."):
        return holder
    return attrs.evolve(holder, key=str(decode(bytes.fromhex(holder.key.partition(",")[0]))))


class BundleContext(execution.BundleContextManager):
    """Beam's manager of a fused stage, whose outputs are plain lists for each reader."""

    def get_buffer(self, buffer_id: bytes, transform_id: str) -> Any:
        """Returns the buffer with this id."""
        if split_buffer_id(buffer_id)[0] == "timers":
            return super().get_buffer(buffer_id, transform_id)
        return self.execution_context.pcoll_buffers.setdefault(buffer_id, ListBuffer(None))


class Context(execution.FnApiRunnerExecutionContext):
    """Beam's context of a run, with a `BundleContext` for each fused stage."""

    def bundle_manager_for(self, stage: Any, num_workers: int | None = None) -> Any:
        """Returns the manager of a stage."""
        if stage.name not in self._stage_managers:
            self._stage_managers[stage.name] = BundleContext(
                self, stage, num_workers or self.num_workers, split_managers=self.split_managers
            )
        return self._stage_managers[stage.name]

    @cached_property
    def served(self) -> ServedState:
        """The state that Beam's worker reads and writes."""
        self.state_servicer._state = served = ServedState()
        return served


@attrs.frozen
class Residual:
    """The rest of the input of a splittable DoFn, which waits to be processed again.

    Attributes:
        name: The name of the transform that reads it.
        element: The encoded element with its restriction.
        hold: The time (us) at which it holds the watermark.
        due: The processing time (us) until which it waits.
    """

    name: str
    element: bytes
    hold: int
    due: int

    SAID: ClassVar[str] = "the rest of the input of a splittable DoFn"


class StageNode:
    """A fused stage with pending elements, and the residuals of its splittable functions."""

    def __init__(self, stage: Any, manager: Any, inputs: Mapping[str, bytes]) -> None:
        self.stage, self.manager, self.inputs = stage, manager, inputs
        self.key: str = " + ".join(sorted(inputs))
        """The name of the node, which is the same in each process; the name of a fused stage is not."""
        self.label: str = stage.name
        self.pending: dict[str, list[bytes]] = {name: [] for name in inputs}
        self.outputs: dict[Any, bytes] = manager.stage_data_outputs
        uses = {
            (transform.unique_name, tag): (transform.inputs[tag], side)
            for transform in stage.transforms
            if (payload := payload_of(transform)) is not None
            for tag, side in payload.side_inputs.items()
        }
        self.sides = NodeSides(uses, manager.execution_context)
        self.side_pending: dict[str, list[bytes]] = {name: [] for name in self.sides.inputs}
        """The elements of each side that are not in the state of the stage yet."""
        self.held: HoldOwner | None = None
        """The row of state that holds the output watermark."""
        self.residuals = list[Residual]()
        self.output = MIN_TIME

    def described(self) -> dict[str, str]:
        """Returns a description that a checkpoint compares: the transforms, and the coders of the input."""
        context = self.manager.execution_context
        coders = context.pipeline_components.coders
        read = {
            context.data_channel_coders[collection]
            for transform in self.stage.transforms
            if transform.unique_name in self.inputs
            for collection in transform.outputs.values()
            if collection in context.data_channel_coders  # a flattening of no collections has no coder
        }
        transforms = sorted(f"the transform {each.unique_name!r}" for each in self.stage.transforms)
        encoded = ", ".join(sorted(coder_text(coders, each) for each in read))
        sides = {
            f"the side input {name!r} of {self.key!r}": side.described()
            for name, side in self.sides.inputs.items()
        }
        return {
            **dict.fromkeys(transforms, ""),
            f"the input of {self.key!r}": f"encoded as {encoded}",
            **sides,
        }

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains, besides the state."""
        yield "watermark", self.output
        yield "pending", self.pending
        yield "sides", self.side_pending
        yield "residuals", [attrs.astuple(each) for each in self.residuals]

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.output = saved["watermark"]
        self.pending, self.side_pending = saved["pending"], saved["sides"]
        self.residuals = [Residual(*each) for each in saved["residuals"]]

    # The node is a host of its operator.

    def window_read(self, side: str, window: bytes) -> Bounds:
        """Returns the bounds (us) of the window of a side that elements in an encoded window read."""
        read = self.sides.inputs[side].mapping(self.window_coder.decode_nested(window))
        return bounds_of(read)

    def reading(self, contents: SideContents) -> AbstractContextManager[None]:
        """Lets the worker read this content of side inputs during a `with` block."""
        return self.sides.read_from(contents)

    def side_arrivals(self) -> dict[str, pl.DataFrame]:
        """Removes the pending elements of the sides, and returns them as rows by the role of the input."""
        arrived, self.side_pending = self.side_pending, {name: [] for name in self.side_pending}
        return {
            f"{ROLE_PREFIX}{name}": self.sides.inputs[name].rows(chunks) for name, chunks in arrived.items()
        }

    @cached_property
    def window_coder(self) -> Any:
        """The coder of the windows of the input."""
        return self.read_coder.window_coder.get_impl()

    @cached_property
    def read_coder(self) -> Any:
        """The coder of the elements of the input."""
        context = self.manager.execution_context
        own = context.data_channel_coders[self.collection]
        return context.pipeline_context.coders[context.safe_coders.get(own, own)]

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness (us) of the input."""
        components = self.manager.execution_context.pipeline_components
        strategy_id = components.pcollections[self.collection].windowing_strategy_id
        return lateness_of(components.windowing_strategies[strategy_id])

    @property
    def collection(self) -> str:
        """The collection that the stage reads, if it has one input."""
        (name,) = self.inputs
        read = next(each for each in self.stage.transforms if each.unique_name == name)
        collection: str = only_element(read.outputs.values())
        return collection

    @property
    def first(self) -> str:
        """The label of the transform that reads the input, if the stage has one input."""
        read = {self.collection}
        label: str = next(
            each.unique_name for each in self.stage.transforms if read & {*each.inputs.values()}
        )
        return label

    @property
    def side_lateness(self) -> int:
        """The time (us) after the end of a window of a side for which an element may read it."""
        return max(self.lateness, self.sides.lateness)

    @property
    def has_pending(self) -> bool:
        """True if elements wait."""
        return any(self.pending.values())

    @cached_property
    def endless(self) -> bool:
        """True if a transform of the stage is a splittable DoFn whose input may have no end."""
        return any(is_splittable(each) and is_endless(payload_of(each)) for each in self.stage.transforms)

    @property
    def splittable(self) -> bool:
        """True if a transform of the stage is a splittable DoFn."""
        return any(map(is_splittable, self.stage.transforms))

    def take_due(self, now: int) -> None:
        """Moves the residuals that are due at a processing time (us) to the pending elements."""
        due = [each for each in self.residuals if each.due <= now]
        self.residuals = [each for each in self.residuals if each.due > now]
        for each in due:
            self.pending[each.name].append(each.element)

    def holder(self) -> HoldOwner | None:
        """Returns what holds the output watermark; None if nothing of this stage does."""
        if self.residuals:
            least = min(self.residuals, key=attrgetter("hold"))
            return HoldOwner(least.hold, "", least.hold, MAX_TIME, due=least.due, said=Residual.SAID)
        return self.held

    def wakes(self) -> list[float]:
        """Returns the times (s, of this machine) at which the stage must be processed again."""
        return [min(each.due for each in self.residuals) / 1e6] if self.residuals else []

    def advance(self, watermark: int) -> bool:
        """Advances the output watermark (us); true if it moves."""
        holds = [watermark, *(each.hold for each in self.residuals)]
        before, self.output = self.output, max(self.output, min(holds))
        return self.output != before
