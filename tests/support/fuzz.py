"""Random pipelines over random columns and rows, some of them invalid, with the expected outcome for every row.

Every row has a number, `id`, which determines the rows that steps drop, multiply or fail on. So the number of elements
that reach the grouping is known. The other values that steps compute are not compared; they must only not fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

import attrs
import narwhals as nw
import polars as pl
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.test_stream.stream import TestStream
from tests.support.model_windows import assign
from tests.support.strategies import FIRST_WATERMARK, all_windows, windowings
from windowing import Accumulation, TimestampOf, WindowFn, Windowing
from windowing.time import Microseconds

Row = dict[str, Any]

# Columns and rows

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
texts = st.text(max_size=8) | st.sampled_from(
    ["", "\x00", "\x1f", "null", "a" * 5_000, "é\u2028", '"\\', "-0"]
)
# Some larger than what a float holds exactly. Two of the ends do not fit a sum, which fails the run.
wholes = st.integers(-3, 3) | st.sampled_from([2**56, -(2**56), 2**63 - 1, -(2**63)])
TYPES: Final[dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]]] = {
    "whole": (pl.Int64(), wholes),
    "small": (pl.Int8(), st.sampled_from([0, 127, -128])),
    "unsigned": (pl.UInt64(), st.sampled_from([0, 1, 2**64 - 1])),
    "long": (pl.Int128(), st.sampled_from([0, 2**127 - 1])),
    "float": (pl.Float64(), st.floats() | st.sampled_from([0.0, -0.0])),
    "short": (pl.Float32(), st.floats(width=32)),
    "text": (pl.String(), texts),
    "flag": (pl.Boolean(), st.booleans()),
    "decimal": (pl.Decimal(10, 2), st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)),
    "day": (pl.Date(), st.dates()),
    "moment": (pl.Datetime("us", "UTC"), st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC))),
    "zoned": (
        pl.Datetime("us", "Europe/Berlin"),
        st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC)),
    ),
    "clock": (pl.Time(), st.sampled_from([time(0), time(12), time(23, 59, 59)])),
    "length": (pl.Duration("us"), st.sampled_from([timedelta(0), timedelta(-1), timedelta(microseconds=1)])),
    "bytes": (pl.Binary(), st.binary(max_size=4)),
    "category": (pl.Categorical(), st.sampled_from(["a", "b", ""])),
    "enum": (pl.Enum(["b", "a"]), st.sampled_from(["a", "b"])),
    "list": (pl.List(pl.Int64()), st.lists(st.none() | wholes, max_size=3)),
    "struct": (
        pl.Struct({"x": pl.Int64(), "y": pl.String()}),
        st.fixed_dictionaries({"x": wholes, "y": texts}),
    ),
}
KEYS: Final = (
    "whole",
    "small",
    "unsigned",
    "long",
    "text",
    "flag",
    "decimal",
    "day",
    "moment",
    "zoned",
    "clock",
)
KEYS += ("category", "enum")
SUMS: Final = ("whole", "small", "float", "decimal", "flag", "length")
times = st.integers(-20, 40)
"""Event times, in microseconds, near each other as in `tests.support.strategies`."""

_GOOD: Final[dict[str, Callable[[int], Any]]] = {
    "number": lambda at: at,
    "text": lambda at: (_EPOCH + timedelta(microseconds=at)).isoformat(),
    "moment": lambda at: _EPOCH + timedelta(microseconds=at),
}
_BAD: Final[dict[str, list[Any]]] = {
    "number": [None, 2**63 - 1, -(2**63)],
    "text": [None, "", "soon", "1970-13-01T00:00:00Z", "\x00"],
    "moment": [None],
}
_TIME_TYPES: Final = {"number": pl.Int64(), "text": pl.String(), "moment": pl.Datetime("us", "UTC")}


@attrs.frozen
class Bundle:
    """Rows that arrive together, or a clock that advances by this many microseconds."""

    rows: tuple[Row, ...] = ()
    watermark: int = 0
    processing_time: int = 0


# Steps

Kind = Literal["filter", "select", "columns", "map", "flat_map", "batches", "flatten", "expression"]


@attrs.frozen
class Op:
    """A step; `by` determines the ids that it treats specially."""

    kind: Kind
    by: int

    def apply(self, rows: bl.Collection, name: str) -> bl.Collection:
        """Returns the collection after the step, which has this name."""
        by, schema = self.by, dict(rows.schema)
        match self.kind:
            case "filter":
                return rows.filter(bl.col("id") % by != 0, name=name)
            case "select":
                return rows.select(*schema).named(name)
            case "columns":
                return rows.with_columns(more=bl.col("id") * by, flag=bl.col("id") > by).named(name)
            case "map":
                return rows.map(_Raising(by), schema, name=name)
            case "flat_map":
                return rows.flat_map(_Several(by), schema, name=name)
            case "batches":
                return rows.map_batches(_same, schema, name=name)
            case "flatten":
                hit = rows.filter(bl.col("id") % by == 0, name=f"{name} hit")
                return bl.flatten(hit, rows.filter(bl.col("id") % by != 0, name=f"{name} rest"), name=name)
            case "expression":  # fails for some
                hit, number = bl.col("id") % by == 0, bl.col("id").cast(nw.String)
                return rows.with_columns(
                    id=nw.when(hit).then(bl.lit("x")).otherwise(number).cast(nw.Int64)
                ).named(name)

    def flow(self, ids: Counter[int]) -> tuple[Counter[int], int]:
        """Returns how often the step emits each id, and the number of dead letters."""
        hit = Counter({number: count for number, count in ids.items() if number % self.by == 0})
        match self.kind:
            case "filter":
                return ids - hit, 0
            case "map" | "expression":
                return ids - hit, hit.total()
            case "flat_map":
                kept = ids - hit
                lost = Counter({number: count for number, count in kept.items() if number % 5 == 4})
                kept -= lost
                return Counter({n: count * (1 + n % 2) for n, count in kept.items()}), lost.total()
        return ids, 0


def _flow(ops: Iterable[Op], ids: Counter[int]) -> tuple[Counter[int], int]:
    letters = 0
    for op in ops:
        ids, lost = op.flow(ids)
        letters += lost
    return ids, letters


@attrs.frozen
class _Raising:
    by: int

    def __call__(self, row: Row) -> Row:
        if row["id"] % self.by == 0:
            raise ValueError(f"no {row['id']}")
        return row


@attrs.frozen
class _Several:
    """A function that returns no row for some inputs, one or two for others, and for some an invalid result."""

    by: int

    def __call__(self, row: Row) -> Iterator[Row]:
        if row["id"] % self.by == 0:
            return
        yield row
        if row["id"] % 5 == 4:
            yield {**row, "id": "not a number"}
        elif row["id"] % 2:
            yield row


def _same(table: Any) -> Any:
    return table


ops = st.builds(
    Op,
    st.sampled_from(["filter", "select", "columns", "map", "flat_map", "batches", "flatten", "expression"]),
    st.integers(2, 4),
)

# Pipelines


@attrs.frozen
class Case:
    """A pipeline and its input: two groupings one after the other, with sinks for all intermediate results."""

    columns: tuple[str, ...]
    time: str
    bundles: tuple[Bundle, ...]
    before: tuple[Op, ...]
    windowing: Windowing
    keys: tuple[str, ...]
    between: tuple[Op, ...]
    then: WindowFn | None

    @property
    def exact(self) -> bool:
        """True if each element is in exactly one pane for each of its windows."""
        return self.windowing.accumulation is Accumulation.DISCARDING

    @property
    def sums_fit(self) -> bool:
        """True if every sum over its whole numbers fits into 64 bits."""
        copies = 2 ** sum(op.kind == "flat_map" for op in self.before)
        wholes = [row.get("whole") or 0 for row in self.rows()]
        most, least = (copies * sum(limit(whole, 0) for whole in wholes) for limit in (max, min))
        return least >= -(2**63) and most < 2**63

    def schema(self) -> dict[str, pl.DataType]:
        """Returns the columns of the source."""
        return {
            "id": pl.Int64(),
            "at": _TIME_TYPES[self.time],
            **{name: TYPES[name][0] for name in self.columns},
        }

    def rows(self) -> Iterator[Row]:
        """Returns all rows of the input."""
        return (row for bundle in self.bundles for row in bundle.rows)

    def bad(self, row: Row) -> bool:
        """True if the row's event time cannot be read."""
        return any(row["at"] is value or row["at"] == value for value in _BAD[self.time])

    def stream(self) -> TestStream:
        """Returns the source."""
        made, watermark = TestStream(self.schema()), FIRST_WATERMARK
        for bundle in self.bundles:
            if bundle.watermark:
                watermark += bundle.watermark
                made = made.advance_watermark_to(Microseconds(watermark))
            elif bundle.processing_time:
                made = made.advance_processing_time(Microseconds(bundle.processing_time))
            else:
                made = made.add_elements(list(bundle.rows))
        return made.advance_watermark_to_infinity()

    def declare(self, pipeline: bl.Pipeline, name: str) -> dict[str, bl.Memory]:
        """Declares the case in a pipeline, with names that begin with `name`; returns its sinks."""
        sinks = {what: bl.Memory() for what in ("panes", "late", "letters", "totals")}
        unit = "us" if self.time == "number" else None
        rows = pipeline.read(f"{name} rows", self.stream(), timestamp="at", timestamp_unit=unit)
        rows.dead_letters().write(f"{name} letters", sinks["letters"])
        for number, op in enumerate(self.before):
            rows = op.apply(rows, f"{name} before {number}")
        choices = {field.name: getattr(self.windowing, field.name) for field in attrs.fields(Windowing)}
        windowed = rows.window_into(**choices)
        grouped = windowed.group_by(*self.keys, name=f"{name} first") if self.keys else windowed
        panes = grouped.aggregate(**self._aggregates())
        if not self.keys:
            panes = panes.named(f"{name} first")
        panes.write(f"{name} panes", sinks["panes"])
        panes.late().select("id", "reason").write(f"{name} late", sinks["late"])
        again = panes.filter(~bl.pane_retracted()) if panes.node.retracting else panes
        again = again.with_columns(id=bl.col("n"))
        for number, op in enumerate(self.between):
            again = op.apply(again, f"{name} between {number}")
        if self.then is not None:
            again = again.window_into(self.then)
        totals = again.aggregate(n=bl.sum("n"), panes=bl.count(), ids=bl.sum("id")).named(f"{name} second")
        totals.write(f"{name} totals", sinks["totals"])
        return sinks

    def _aggregates(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"n": bl.count()}
        if self.windowing.accumulation is not Accumulation.RETRACTING:
            chosen["ids"] = bl.collect("id")
            for name in self.columns:
                chosen |= {f"first {name}": bl.first(name), f"last {name}": bl.last(name)}
                if name not in ("list", "struct"):
                    chosen |= {f"least {name}": bl.min(name), f"most {name}": bl.max(name)}
        for name in self.columns:
            if name in SUMS:
                chosen[f"sum {name}"] = bl.sum(name)
        return chosen

    def elements(self) -> tuple[Counter[int], int]:
        """Returns how often each id reaches the first grouping, and the dead letters of the steps before it."""
        return _flow(self.before, Counter(row["id"] for row in self.rows() if not self.bad(row)))

    def again(self, panes: Iterable[Row]) -> tuple[Counter[int], int]:
        """Like `elements`, for the second grouping after these panes of the first."""
        return _flow(self.between, Counter(row["n"] for row in panes if not row.get("pane_retracted")))

    def pairs(self) -> Counter[int]:
        """Returns how often each id must be in a pane or be dropped: once per window, and once if it has no window."""
        ids, _ = self.elements()
        good = (row for row in self.rows() if row["id"] in ids)
        return Counter({row["id"]: ids[row["id"]] * max(1, self._windows(row)) for row in good})

    def _windows(self, row: Row) -> int:
        return len(assign(self.windowing.windows, self.at(row)))

    def at(self, row: Row) -> int:
        """Returns the event time of a row that has one, in microseconds."""
        given = row["at"]
        if self.time == "number":
            return int(given)
        moment = datetime.fromisoformat(given) if self.time == "text" else given
        return (moment - _EPOCH) // timedelta(microseconds=1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draws any case that can be declared."""
    columns = tuple(draw(st.lists(st.sampled_from(sorted(TYPES)), max_size=4, unique=True)))
    time_type = draw(st.sampled_from(sorted(_GOOD)))
    ids = iter(range(1_000))
    row = st.fixed_dictionaries({name: st.none() | TYPES[name][1] for name in columns})

    def rows() -> tuple[Row, ...]:
        made = []
        for values in draw(st.lists(row, max_size=6)):
            bad = draw(st.integers(0, 7)) == 0
            at = draw(st.sampled_from(_BAD[time_type])) if bad else _GOOD[time_type](draw(times))
            made.append({"id": next(ids), "at": at, **values})
        return tuple(made)

    bundles = []
    for move in draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)):
        step = draw(st.integers(1, 20))
        if move < 3:
            bundles.append(Bundle(rows()))
        else:
            bundles.append(Bundle(processing_time=step) if move == 5 else Bundle(watermark=step))
    windowing = draw(windowings(windows=all_windows).filter(_is_usual))
    keys = [name for name in columns if name in KEYS]
    # Arrow tables have no whole numbers of 128 bits.
    steps = ops.filter(lambda op: op.kind != "batches") if "long" in columns else ops
    retracting = windowing.accumulation is Accumulation.RETRACTING
    then = draw(st.none() | (all_windows.filter(_parts) if retracting else all_windows))
    return Case(
        columns,
        time_type,
        tuple(bundles),
        tuple(draw(st.lists(steps, max_size=3))),
        windowing,
        tuple(draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))) if keys else (),
        tuple(draw(st.lists(steps, max_size=2))),
        then,
    )


def _parts(windows: WindowFn) -> bool:
    """True if removing an element can split windows: merged windows do not split again."""
    return not windows.merging


def _is_usual(windowing: Windowing) -> bool:
    """True for a windowing without percentiles, which a stream must announce, and without chosen elements."""
    clocks = windowing.trigger.clocks()
    chosen = isinstance(windowing.timestamp_combiner, TimestampOf)
    return not (chosen or any(clock.startswith("percentile") for clock in clocks))


def counts(sink: bl.Memory, column: str) -> Counter[int]:
    """Returns how often each id is in this column of a sink, or in its lists."""
    values = sink.frame()[column]
    if isinstance(values.dtype, pl.List):
        values = values.explode(keep_nulls=False, empty_as_null=False)
    return Counter(values.to_list())


def as_texts(sinks: Mapping[str, bl.Memory]) -> dict[str, list[str]]:
    """Returns the rows of sinks in comparable form: rows and lists are sorted, and NaN equals itself."""
    return {name: sorted(map(_text, sink.rows())) for name, sink in sinks.items()}


def _text(row: Row) -> str:
    sorted_lists = {
        name: sorted(map(repr, value)) if isinstance(value, list) else value for name, value in row.items()
    }
    return repr(sorted_lists)
