"""The side inputs of fused stages: their content, and the elements that wait for it."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2 as fn_protos
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.fn_api_runner.translations import split_buffer_id
from apache_beam.transforms import window as beam_window

from beamlike.beam.nodes import Context, SideUse, StageNode
from beamlike.beam.strategies import end_of
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


def _start_of(window: Any) -> int:
    start: int = window.start.micros if isinstance(window, beam_window.IntervalWindow) else MIN_TIME
    return start


class Sides:
    """The content of all side inputs.

    An element is admitted to its stage when the window that it reads is ready on each side: when the watermark of the
    side has passed its end, or, if the trigger of the side may fire before, when its first pane has arrived.
    """

    def __init__(self, context: Context, written: Callable[[bytes], int]) -> None:
        self.context, self.written = context, written
        self.content: dict[bytes, list[bytes]] = {}
        self.windows = defaultdict[str, set[Any]](set)
        self.read = defaultdict[str, int](int)
        """The number of chunks of a side whose windows are known."""
        self.stored = defaultdict[bytes, int](int)
        """The number of chunks of a side that are in the checkpoint."""

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields the chunks that a checkpoint does not contain yet."""
        for buffer, chunks in self.content.items():
            for number in range(self.stored[buffer], len(chunks)):
                yield f"{buffer.decode()}/{number:012}", chunks[number]
            self.stored[buffer] = len(chunks)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        for name in sorted(saved):
            buffer = name.rpartition("/")[0].encode()
            self.content[buffer].append(saved[name])
            self.stored[buffer] += 1

    def declare(self, node: StageNode) -> None:
        """Registers the side inputs of a stage."""
        for side in node.sides:
            self.content.setdefault(side.buffer, [])

    def add(self, buffer: bytes, data: bytes) -> None:
        """Adds elements to the side that reads this buffer, if there is one."""
        if buffer in self.content:
            self.content[buffer].append(data)

    def replace(self, buffer: bytes, chunks: list[bytes]) -> None:
        """Replaces the content of a side."""
        _, collection = split_buffer_id(buffer)
        self.content[buffer] = chunks
        self.windows.pop(collection, None)
        self.read.pop(collection, None)

    def admit(self, node: StageNode) -> tuple[dict[str, list[bytes]], bool]:
        """Removes the pending elements that need not wait, and gives the worker the content that they read.

        Returns these elements, and true if other elements wait.
        """
        taken, node.pending, node.awaited = node.pending, {name: [] for name in node.inputs}, None
        waiting = [side for side in node.sides if self._watermark(side) < GLOBAL_WINDOW_END]
        if waiting:
            taken = {name: self._admitted(node, name, chunks, waiting) for name, chunks in taken.items()}
        if any(taken.values()):
            self.publish(node)
        return taken, node.has_pending

    def _admitted(self, node: StageNode, name: str, chunks: list[bytes], sides: list[SideUse]) -> list[bytes]:
        coder = node.manager.get_input_coder_impl(name)
        ready, waiting, awaited = create_OutputStream(), create_OutputStream(), list[tuple[int, int]]()
        for element in coder.decode_all(b"".join(chunks)):
            missing = [
                (_start_of(read), end_of(read))
                for side in sides
                for read in (side.mapping(window) for window in element.windows)
                if not self.is_ready(side, read)
            ]
            coder.encode_to_stream(element, waiting if missing else ready, True)
            awaited += missing
        node.awaited = min(
            [*awaited, *([node.awaited] if node.awaited else [])], key=itemgetter(1), default=None
        )
        node.pending[name] += [waiting.get()] if waiting.size() else []
        return [ready.get()] if ready.size() else []

    def is_ready(self, side: SideUse, read: Any) -> bool:
        """True if an element need not wait for a window of a side."""
        if self._watermark(side) > read.max_timestamp().micros:
            return True
        components = self.context.pipeline_components
        strategy_id = components.pcollections[side.collection].windowing_strategy_id
        trigger = components.windowing_strategies[strategy_id].trigger.WhichOneof("trigger")
        return trigger not in (None, "default", "never") and read in self._windows(side)

    def _watermark(self, side: SideUse) -> int:
        return self.written(side.buffer)

    def _windows(self, side: SideUse) -> set[Any]:
        """Returns the windows of a side that have content."""
        coder = self._coder(side).get_impl()
        chunks, found = self.content[side.buffer], self.windows[side.collection]
        for chunk in chunks[self.read[side.collection] :]:
            found.update(window for each in coder.decode_all(chunk) for window in each.windows)
        self.read[side.collection] = len(chunks)
        return found

    def _coder(self, side: SideUse) -> Any:
        context = self.context
        own = context.data_channel_coders[side.collection]
        return context.pipeline_context.coders[context.safe_coders[own]]

    def publish(self, node: StageNode) -> None:
        """Replaces the content that the worker reads, if it has changed since the last bundle of the stage."""
        version = tuple(len(self.content[side.buffer]) for side in node.sides)
        if not node.sides or version == node.side_version:
            return
        node.side_version = version
        state = self.context.state_servicer
        for side in node.sides:
            written = defaultdict[bytes, list[bytes]](list)
            for key, data in self._entries(side):
                written[key.SerializeToString()].append(data)
            for name, content in written.items():
                key = fn_protos.StateKey.FromString(name)
                state.clear(key)
                for data in content:
                    state.append_raw(key, data)

    def _entries(self, side: SideUse) -> Iterator[tuple[Any, bytes]]:
        """Yields the content of a side as (state key, bytes), as the worker requests it."""
        grouped = execution.WindowGroupingBuffer(side.proto.access_pattern, self._coder(side))
        for chunk in self.content[side.buffer]:
            grouped.append(chunk)
        keys = fn_protos.StateKey
        common = {"transform_id": side.transform, "side_input_id": side.tag}
        for key, window, data, count in grouped.encoded_items():
            if side.proto.access_pattern.urn == common_urns.side_inputs.ITERABLE.urn:
                yield keys(iterable_side_input=keys.IterableSideInput(window=window, **common)), data
                continue
            one = keys.MultimapSideInput(window=window, key=key, **common)
            yield keys(multimap_side_input=one), data
            all_keys = keys.MultimapKeysSideInput(window=window, **common)
            yield keys(multimap_keys_side_input=all_keys), key
            pairs = keys.MultimapKeysValuesSideInput(window=window, **common)
            yield keys(multimap_keys_values_side_input=pairs), key + struct.pack(">i", count) + data
