"""A fused stage that begins with a ParDo with state or timers, as a stage of the engine."""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import polars as pl
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.portability.api import beam_fn_api_pb2 as fn_protos
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner.execution import ListBuffer
from apache_beam.runners.portability.fn_api_runner.translations import create_buffer_id

from beamlike.beam.bags import CHUNK_BYTES, Bag
from beamlike.beam.bundles import Bundles
from beamlike.beam.cells import BUFFER, DATA, CellRow, Changes, ReadChunks, StatefulParDo
from beamlike.beam.nodes import StageNode, readable
from beamlike.beam.sided import in_window
from beamlike.beam.strategies import end_of
from stages.operator import MAIN
from stages.stage import Stage, StageResult
from stages.state.index import DEADLINE, HoldOwner
from stages.state.store import StateStore
from windowing.clocks import PROCESSING_TIME, Times
from windowing.time import MIN_TIME

Family = tuple[str, str]
"""A timer family: the names of its transform and of itself."""
_STATE: Final = ("bag_user_state", "multimap_user_state", "ordered_list_user_state")


def timer_name(family: str) -> str:
    """Returns the name of a timer that a user has given, from that of its family."""
    return family.removeprefix("ts-")


def state_of(name: bytes) -> Any | None:
    """Returns the key, the window and the user's name of a state of the servicer; None if it is no user state."""
    key = fn_protos.StateKey.FromString(name)
    kind = key.WhichOneof("type")
    return getattr(key, kind) if kind in _STATE else None


def place_of(name: bytes) -> tuple[bytes, int] | None:
    """Returns the name of an ordered list and a number in it, if the name of a state is that of its values there.

    The servicer has the values for each number under a name of their own, and the numbers under that of the list.
    """
    key = fn_protos.StateKey.FromString(name)
    if key.WhichOneof("type") != "ordered_list_user_state":
        return None
    number = key.ordered_list_user_state.range.start
    key.ordered_list_user_state.ClearField("range")
    whole: bytes = key.SerializeToString()
    return whole, number


def alone(coder: Any, element: Any, window: Any) -> bytes:
    """Encodes an element in one of its windows."""
    out = create_OutputStream()
    coder.encode_to_stream(in_window(element, window), out, True)
    encoded: bytes = out.get()
    return encoded


@attrs.define
class Cell:
    """The state and timers of a key, with the times at which they are due (us)."""

    state: dict[bytes, tuple[int, list[bytes]]] = attrs.field(factory=dict)
    """For each bag the number of its chunks, and the content that is in no chunk."""
    timers: list[tuple[Family, bytes]] = attrs.field(factory=list)
    due: list[int] = attrs.field(factory=list)
    due_by_clock: list[int] = attrs.field(factory=list)
    holds: list[tuple[int, int, str]] = attrs.field(factory=list)
    """The hold of each timer, the time for which it is set, and its name."""

    def row(self, key: bytes) -> CellRow:
        """Returns the cell as a row of the table."""
        due, due_by_clock = (min(each, default=None) for each in (self.due, self.due_by_clock))
        hold, set_for, timer = min(self.holds, default=(None, None, None))
        content = marshal.dumps((self.state, self.timers))
        return key, content, timer, len(self.timers), hold, set_for, due, due_by_clock


class StatefulNode(StageNode):
    """A fused stage whose state and timers are stored in a table of the engine."""

    def __init__(
        self,
        stage: Any,
        manager: Any,
        inputs: Mapping[str, bytes],
        bundles: Bundles,
        now: Callable[[], int],
        store: StateStore,
    ) -> None:
        super().__init__(stage, manager, inputs)
        self.bundles, self.now, self.servicer = bundles, now, bundles.context.state_servicer
        (self.name,) = inputs
        self._find_coders()
        sides = self.sides.declared(self)
        self.operator = StatefulParDo(self, self.lateness, sides, self.side_lateness, self.first)
        self.engine, self.store = Stage(self.key, self.operator), store
        self.timers: dict[tuple[Any, ...], Any] = {}
        self.clock: tuple[int, int, dict[str, int]] | None = None
        self.done: StageResult | None = None
        self.next_wake: int | None = None
        self.chunked: dict[bytes, tuple[bytes, Bag]] = {}
        """The loaded bags that have chunks, each with its key."""
        self.changed = Changes()
        self.out: list[tuple[bytes, bytes]] = []

    def saved(self) -> Iterator[tuple[str, Any]]:
        yield from super().saved()
        yield "clock", self.clock

    def resume(self, saved: Mapping[str, Any]) -> None:
        super().resume(saved)
        # The next step processes the timers that are due by now, and finds what holds the watermark.
        self.clock, self.next_wake = saved["clock"], MIN_TIME

    def _find_coders(self) -> None:
        context = self.bundles.context
        self.coder = self.manager.get_input_coder_impl(self.name)
        self.key_coder = self.read_coder.wrapped_value_coder.key_coder().get_impl()
        # The key of a timer is decoded; that of an element is not, and has a prefix with its length.
        decoding = context.pipeline_context.coders[context.data_channel_coders[self.collection]]
        self.timer_key_coder = decoding.wrapped_value_coder.key_coder().get_impl()

    def step(self, watermark: int, sides: Mapping[str, int]) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Processes elements, then advances the clocks (us) of the stage and of its sides.

        Returns the output, and true if anything has happened.
        """
        arrived, now = self.has_pending or any(self.side_pending.values()), self.now()
        waits = self.next_wake is None or self.next_wake > now
        moves = self.clock is None or (watermark, sides) != self.clock[::2]
        if not arrived and waits and not moves:
            return [], False
        chunks, self.pending[self.name] = self.pending[self.name], []
        rows, self.clock = self.arrivals(chunks), (watermark, now, dict(sides))
        times = Times.of(watermark, now, sides=sides)
        done = self.done = self.processed({MAIN: rows, **self.side_arrivals()}, times)
        self.held = done.holder
        before, self.output = self.output, done.watermarks.output
        self.next_wake = min((wake for wake in self.due_by_clock() if wake is not None), default=None)
        output = list(done.panes.select(BUFFER, DATA).iter_rows())
        return output, bool(arrived or output or done.fired) or self.output != before

    def processed(self, arrivals: Mapping[str, pl.DataFrame], times: Times) -> StageResult:
        """Processes elements with the stage, then advances its clocks."""
        return self.engine.step(self.store, arrivals, times)

    def due_by_clock(self) -> list[int | None]:
        """Returns the least due time (us) of the timers that wait for the processing time, of each store."""
        return [self._least_wake(self.store)]

    def _least_wake(self, store: StateStore) -> int | None:
        index = next(iter(self.engine.tables(store).indices.values()))
        least: Any = index.buckets[DEADLINE + PROCESSING_TIME].min()
        return None if least is None else int(least)

    def holder(self) -> HoldOwner | None:
        return readable(super().holder(), self.timer_key_coder.decode_nested)

    def wakes(self) -> list[float]:
        return super().wakes() + ([] if self.next_wake is None else [self.next_wake / 1e6])

    def arrivals(self, chunks: Iterable[bytes]) -> pl.DataFrame:
        """Decodes elements to a frame with a row for each window."""
        rows = [
            (
                self.key_coder.encode_nested(element.value[0]),
                alone(self.coder, element, window),
                element.timestamp_micros,
                end_of(window),
                *((self.window_coder.encode_nested(window),) if self.sides else ()),
            )
            for chunk in chunks
            for element in self.coder.decode_all(chunk)
            for window in element.windows
        ]
        return pl.DataFrame(rows, self.engine.operator.inputs[MAIN].schema, orient="row")

    # The node is the host of its operator.

    def begin(self, now: int) -> None:
        """Starts a step at a processing time (us). What a failed step has left is removed."""
        self.now = lambda: now
        for name in [name for name in self.servicer._state if state_of(name) is not None]:
            del self.servicer._state[name]
        self.servicer._ordered_list_keys.clear()
        for left in (self.timers, self.chunked, self.out):
            left.clear()
        self.changed = Changes()

    def load(self, cell: bytes, read: ReadChunks) -> None:
        state, *_, timers = marshal.loads(cell)  # earlier versions have a third part, which is empty
        for name, (chunks, values) in state.items():
            own = state_of(name)
            assert own is not None
            key = own.key
            bag = Bag(chunks, partial(read, key, name), list(values))
            self.servicer._state[name] = bag
            if chunks:
                self.chunked[name] = key, bag
            if (place := place_of(name)) is not None:
                self.servicer._ordered_list_keys[place[0]].add(place[1])
        for family, encoded in timers:
            for timer in self.manager.get_timer_coder_impl(*family).decode_all(encoded):
                self._set(family, timer)

    def play(self, elements: list[bytes], watermark: int) -> int:
        if elements:
            self._process({self.name: [b"".join(elements)]}, {})
        fired = 0
        while timers := self._due(watermark):
            fired += 1
            self._process({}, timers)
        return fired

    def save(self, watermark: int) -> list[CellRow]:
        cells = defaultdict[bytes, Cell](Cell)
        self._save_state(cells, watermark)
        for (transform, family, user_key, _, _), timer in self.timers.items():
            cell = cells[self.timer_key_coder.encode_nested(user_key)]
            cell.timers.append(((transform, family), self._encoded((transform, family), [timer])))
            due = cell.due if self.by_watermark((transform, family)) else cell.due_by_clock
            fires = timer.fire_timestamp.micros
            due.append(fires)
            cell.holds.append((timer.hold_timestamp.micros, fires, timer_name(family)))
        self.timers.clear()
        self.chunked.clear()
        return [cell.row(key) for key, cell in cells.items()]

    def changes(self) -> Changes:
        changed, self.changed = self.changed, Changes()
        return changed

    def emitted(self) -> list[tuple[bytes, bytes]]:
        out, self.out = self.out, []
        return out

    def _process(self, data: Mapping[str, Iterable[bytes]], timers: Mapping[Any, Any]) -> None:
        self.out += self.bundles.process(self, data, timers)
        for family in self.stage.timers:
            self._collect_timers(family)

    def _save_state(self, cells: Mapping[bytes, Cell], watermark: int) -> None:
        """Moves user state from the servicer to cells. State of collected windows is removed.

        A timer by processing time can fire after its window is collected, and reads the state. So the state of its key
        and window is stored until then.
        """
        awaited = self._awaited()
        for name in list(self.servicer._state):
            own = state_of(name)
            if own is None:
                continue
            values = self.servicer._state.pop(name)
            collected = end_of(self.window_coder.decode_nested(own.window)) + self.lateness
            if len(values) and (collected > watermark or (own.key, own.window) in awaited):
                cell = cells[own.key]
                cell.state[name] = self._chunked(own.key, name, values)
                cell.due += [collected] if collected > watermark else []
        self.changed.removed.extend((key, name) for name, (key, _) in self.chunked.items())
        self.servicer._ordered_list_keys.clear()

    def _awaited(self) -> set[tuple[bytes, bytes]]:
        """Returns the encoded keys and windows of the pending timers by processing time."""
        return {
            (self.timer_key_coder.encode_nested(user_key), self.window_coder.encode_nested(window))
            for transform, family, user_key, _, window in self.timers
            if not self.by_watermark((transform, family))
        }

    def _chunked(self, key: bytes, name: bytes, values: Any) -> tuple[int, list[bytes]]:
        """Returns the content of a bag as it is stored in a cell. What has become large is moved to a new chunk."""
        # A bag that the worker has cleared is a new list, and its chunks are removed.
        bag = values if isinstance(values, Bag) else Bag(0, list, list(values))
        if (known := self.chunked.get(name)) is not None and known[1] is bag:
            del self.chunked[name]
        if sum(map(len, bag.values)) < CHUNK_BYTES:
            return bag.chunks, bag.values
        self.changed.written.append((key, name, bag.chunks, b"".join(bag.values)))
        return bag.chunks + 1, []

    def _collect_timers(self, family: Family) -> None:
        """Moves the timers that a bundle has set or cleared from their buffer."""
        transform, name = family
        written = self.manager.get_buffer(create_buffer_id(name, "timers"), transform)
        if written.cleared:
            return
        coder = self.manager.get_timer_coder_impl(transform, name)
        for timer in [timer for chunk in written for timer in coder.decode_all(chunk)]:
            self._set(family, timer)
        written.clear()

    def _set(self, family: Family, timer: Any) -> None:
        key = (*family, timer.user_key, timer.dynamic_timer_tag, timer.windows[0])
        if timer.clear_bit:
            self.timers.pop(key, None)
        else:
            self.timers[key] = timer

    def by_watermark(self, family: Family) -> bool:
        """True if the timers of a family fire by the watermark."""
        domain: bool = self.manager.stage_timer_outputs[family][1] == beam_protos.TimeDomain.EVENT_TIME
        return domain

    def _due(self, watermark: int) -> dict[Family, Any]:
        """Removes the timers with the least due time, and returns them encoded by family."""
        now = self.now()
        ready = [
            (timer.fire_timestamp, key)
            for key, timer in self.timers.items()
            if timer.fire_timestamp.micros <= (watermark if self.by_watermark(key[:2]) else now)
        ]
        first = min((when for when, _ in ready), default=None)
        fired = defaultdict[Family, list[Any]](list)
        for when, key in ready:
            if when == first:
                fired[key[:2]].append(self.timers.pop(key))
        return {family: self._buffer(family, timers) for family, timers in fired.items()}

    def _buffer(self, family: Family, timers: list[Any]) -> Any:
        buffer = ListBuffer(self.manager.get_timer_coder_impl(*family))
        buffer.append(self._encoded(family, timers))
        return buffer

    def _encoded(self, family: Family, timers: list[Any]) -> bytes:
        coder, out = self.manager.get_timer_coder_impl(*family), create_OutputStream()
        for timer in timers:
            coder.encode_to_stream(timer, out, True)
        encoded: bytes = out.get()
        return encoded
