"""The side inputs of a fused stage: their declaration, the rows of their elements, and what Beam's worker reads.

elements of a side --rows--> window, key, data --> state of the stage, by window (stages.sides)
                                                           |
Beam's worker  <-- a window, or the values of a key  <-- index of the windows that it has read
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Final, Protocol

import attrs
import polars as pl
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2 as fn_protos
from apache_beam.runners.portability.fn_api_runner.translations import create_buffer_id
from apache_beam.transforms import window as beam_window
from apache_beam.utils.windowed_value import PaneInfoTiming

from beamlike.beam.cells import DATA, KEY
from beamlike.beam.strategies import coder_text, described, end_of, lateness_of
from beamlike.expressions.describe import windowing_choices
from stages.sides.contents import SideContents
from stages.sides.declarations import Feed, Side
from windowing import GlobalWindows, Windowing
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

WINDOW: Final = "window"
COUNT: Final = "count"
"""The column with the number of values in a row."""
CONTENT: Final = pl.Schema({WINDOW: pl.Binary(), KEY: pl.Binary(), DATA: pl.Binary(), COUNT: pl.Int64()})
"""The columns of a row of a side: encoded values of a window, or of a key in it."""
FIRING: Final = "firing"
"""The column with a digest of the key and window of the pane that elements are from; null if they are from none."""
PANE: Final = "pane"
"""The column with the number of that pane."""
FIRED: Final = pl.Schema({**CONTENT, FIRING: pl.Binary(), PANE: pl.Int64()})
"""The columns of a row of a side whose windows may fire more than once."""
_ROW_BYTES: Final = 1 << 18
"""The size of encoded values from which a further row begins."""
_UNLIMITED: Final = MAX_TIME
"""The limit of the size of a side (bytes): Beam has none."""
_BY_END: Final = (beam_window.GlobalWindows, beam_window.FixedWindows, beam_window.SlidingWindows)
"""The kinds of windows of which no two have the same end."""

Bounds = tuple[int, int]


def bounds_of(window: Any) -> Bounds:
    """Returns the start and end (us) of a window of any kind."""
    start: int = window.start.micros if isinstance(window, beam_window.IntervalWindow) else MIN_TIME
    return start, end_of(window)


class WindowReader(Protocol):
    """A component that finds the window of a side that an element reads."""

    def window_read(self, side: str, window: bytes) -> Bounds:
        """Returns the bounds (us) of the window of a side that elements in an encoded window read."""


@attrs.frozen(eq=False, kw_only=True)
class BeamSide(Side):
    """The declaration of a side whose windows Beam maps. Windows of the main input are encoded."""

    reader: WindowReader

    def readers_of(self, start: int, end: int) -> Bounds:
        return MIN_TIME, MAX_TIME

    def windows_of(self, ends: pl.Series) -> dict[Any, Bounds]:
        # Elements without a window are ready when the side has ended.
        ended = MIN_TIME, GLOBAL_WINDOW_END
        return {
            window: ended if window is None else self.reader.window_read(self.name, window)
            for window in ends.to_list()
        }


class Index:
    """The content of a side in the windows with one end, as Beam's worker requests it: by window and key.

    `token` identifies the content.
    """

    def __init__(self, token: str, rows: pl.DataFrame) -> None:
        self.token = token
        self.windows: dict[bytes, dict[bytes | None, list[tuple[bytes, int]]]] = {}
        self.add(token, rows)

    def add(self, token: str, rows: pl.DataFrame) -> None:
        """Adds rows. The content is then that of another token."""
        self.token = token
        for window, key, data, count in rows.select(*CONTENT).iter_rows():
            self.windows.setdefault(window, {}).setdefault(key, []).append((data, count))

    def read(self, kind: str, window: bytes, key: bytes | None) -> list[bytes]:
        """Returns the encoded answer to a request of the worker, in parts."""
        keys = self.windows.get(window, {})
        match kind:
            case "multimap_keys_side_input":
                return [each for each in keys if each is not None]
            case "multimap_keys_values_side_input":
                return [_entry(each, parts) for each, parts in keys.items() if each is not None]
            case _:
                return [data for data, _ in keys.get(key, ())]


def _entry(key: bytes, parts: list[tuple[bytes, int]]) -> bytes:
    count = sum(count for _, count in parts)
    return b"".join([key, struct.pack(">i", count), *(data for data, _ in parts)])


class ServedState(defaultdict[bytes, Any]):
    """The state of Beam's servicer. Side inputs are not in it: they are read when the worker requests them."""

    def __init__(self) -> None:
        super().__init__(list)
        self.readers: dict[tuple[str, str], Callable[[str, Any], list[bytes]]] = {}

    def __missing__(self, name: bytes) -> Any:
        key = fn_protos.StateKey.FromString(name)
        kind: Any = key.WhichOneof("type")
        if kind.endswith("_side_input"):
            own = getattr(key, kind)
            return self.readers[own.transform_id, own.side_input_id](kind, own)
        return super().__missing__(name)


@attrs.frozen(slots=False, eq=False)
class SideInput:
    """A collection that a transform reads as a side input.

    Attributes:
        name: The name of the side: the label of the transform that writes it.
        collection: The collection.
        proto: The proto of the side input.
        context: Beam's context of the run.
    """

    name: str
    collection: str
    proto: Any
    context: Any

    @property
    def buffer(self) -> bytes:
        """The buffer of the collection."""
        buffer: bytes = create_buffer_id(self.collection)
        return buffer

    @property
    def by_key(self) -> bool:
        """True if the worker reads the values of single keys."""
        return bool(self.proto.access_pattern.urn == common_urns.side_inputs.MULTIMAP.urn)

    @cached_property
    def coder(self) -> Any:
        """The coder of the elements, whose values the worker may read as they are."""
        context = self.context
        return context.pipeline_context.coders[
            context.safe_coders[context.data_channel_coders[self.collection]]
        ]

    @cached_property
    def window_coder(self) -> Any:
        """The coder of the windows."""
        return self.coder.window_coder

    @cached_property
    def mapping(self) -> Callable[[Any], Any]:
        """The function from the window of an element to the window of the side that it reads."""
        mapping: Callable[[Any], Any] = pickler.loads(self.proto.window_mapping_fn.payload)
        return mapping

    @cached_property
    def strategy(self) -> Any:
        """The proto of the windowing strategy."""
        components = self.context.pipeline_components
        return components.windowing_strategies[components.pcollections[self.collection].windowing_strategy_id]

    @cached_property
    def window_fn(self) -> Any:
        """Beam's `WindowFn` of the collection."""
        components, built = self.context.pipeline_components, self.context.pipeline_context
        strategy_id = components.pcollections[self.collection].windowing_strategy_id
        return built.windowing_strategies.get_by_id(strategy_id).windowfn

    @property
    def windowing(self) -> Windowing:
        """The windows, for descriptions."""
        return described(Windowing(GlobalWindows()), self.window_fn)

    def described(self) -> str:
        """Returns a description that a checkpoint compares: the windows and the coder."""
        coders, names = self.context.pipeline_components.coders, self.context.data_channel_coders
        windows = windowing_choices(self.windowing)["windows"]
        return f"windows {windows}, encoded as {coder_text(coders, names[self.collection])}"

    def declared(self, reader: WindowReader, *, fired: bool = False) -> BeamSide:
        """Returns the declaration of the side. `fired`: a firing of a window replaces the one before."""
        waits = self.strategy.trigger.WhichOneof("trigger") in (None, "default", "never")
        # Content is noted by the end of its window. If others may have the same end, no first content is certain.
        feed: Feed = "whole" if waits or not isinstance(self.window_fn, _BY_END) else "growing"
        return BeamSide(
            name=self.name,
            schema=FIRED if fired else CONTENT,
            windows=self.windowing.windows,
            feed=feed,
            limit=_UNLIMITED,
            windowed=True,
            firing=(FIRING, PANE) if fired else None,
            reader=reader,
        )

    def rows(self, chunks: Iterable[bytes], firing: bytes | None = None) -> pl.DataFrame:
        """Decodes elements to rows of the side, with the pane that they are from, if they are from a firing.

        The time of a row is that of its first element.
        """
        value = self.coder.wrapped_value_coder
        own = (value.value_coder() if self.by_key else value).get_impl()
        key_coder = value.key_coder().get_impl() if self.by_key else None
        found, rows = dict[tuple[Any, bytes | None, int | None], list[Any]](), list[tuple[Any, ...]]()
        for element in self.coder.get_impl().decode_all(b"".join(chunks)):
            key, content, pane = None, element.value, element.pane_info
            number = None if firing is None or pane.timing == PaneInfoTiming.UNKNOWN else pane.index
            if key_coder is not None:
                key, content = key_coder.encode_nested(content[0]), content[1]
            for window in element.windows:
                part = found.setdefault((window, key, number), [None, 0, 0])
                if not part[1]:
                    part[0], part[2] = create_OutputStream(), element.timestamp_micros
                own.encode_to_stream(content, part[0], True)
                part[1] += 1
                if part[0].size() > _ROW_BYTES:
                    rows.append(self._row(window, key, number, *part))
                    part[1] = 0
        rows += [self._row(*place, *part) for place, part in found.items() if part[1]]
        schema = pl.Schema({**CONTENT, **dict.fromkeys((PANE, EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())})
        decoded = pl.DataFrame(rows, schema, orient="row")
        return decoded.with_columns(
            pl.when(pl.col(PANE).is_not_null()).then(pl.lit(firing, pl.Binary)).alias(FIRING)
        )

    def _row(
        self, window: Any, key: bytes | None, number: int | None, out: Any, count: int, first: int
    ) -> tuple[Any, ...]:
        encoded = self.window_coder.encode(window)
        return encoded, key, out.get(), count, number, first, *bounds_of(window)


class NodeSides:
    """The sides of a fused stage, with the indices of their content that the worker has read.

    Attributes:
        inputs: The sides by name.
        lateness: The greatest allowed lateness (us) of a side.
    """

    def __init__(self, uses: Mapping[tuple[str, str], tuple[str, Any]], context: Any) -> None:
        """`uses` are the collection and the proto of each side input, by transform and tag."""
        self.context = context
        self.inputs: dict[str, SideInput] = {}
        self.indices: dict[tuple[str, int], Index] = {}
        self.contents: SideContents | None = None
        named = dict[tuple[str, str], str]()
        for place, (collection, proto) in uses.items():
            how = collection, proto.access_pattern.urn
            if how not in named:
                named[how] = self._name(collection)
                self.inputs[named[how]] = SideInput(named[how], collection, proto, context)
            context.served.readers[place] = partial(self._read, named[how])
        self.lateness = max((lateness_of(side.strategy) for side in self.inputs.values()), default=0)

    def __bool__(self) -> bool:
        return bool(self.inputs)

    def _name(self, collection: str) -> str:
        """Returns a name of the transform that writes a collection, which no other side has."""
        transforms = self.context.pipeline_components.transforms.values()
        makers = [each.unique_name for each in transforms if collection in each.outputs.values()]
        # The outermost transform has the shortest name. State is stored by name, with "/" after it.
        name = min(sorted(makers), key=len, default=collection).replace("/", ".")
        return name if name not in self.inputs else f"{name} {len(self.inputs)}"

    def declared(self, reader: WindowReader, fired: Container[str] = frozenset()) -> tuple[BeamSide, ...]:
        """Returns the declarations of the sides. `fired` are the collections whose firings replace each other."""
        return tuple(side.declared(reader, fired=side.collection in fired) for side in self.inputs.values())

    @contextmanager
    def read_from(self, contents: SideContents) -> Iterator[None]:
        """Lets the worker read this content until the end of the `with` block."""
        for place, (before, rows) in contents.added.items():
            if (index := self.indices.get(place)) is not None and index.token == before:
                index.add(contents.versions[place].token, rows)
        self.contents = contents
        try:
            yield
        finally:
            self.contents = None
            self.indices = {place: one for place, one in self.indices.items() if place in contents.versions}

    def _read(self, name: str, kind: str, key: Any) -> list[bytes]:
        assert self.contents is not None
        window = self.inputs[name].window_coder.decode(key.window)
        place = name, end_of(window)
        content = self.contents.content(self.contents.tables[name].side, place[1])
        index = self.indices.get(place)
        if index is None or index.token != content.token:
            index = self.indices[place] = Index(content.token, content.load())
        return index.read(kind, key.window, key.key if kind == "multimap_side_input" else None)
