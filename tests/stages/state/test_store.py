"""The state store: bytes that read back, an index that finds due rows, invisible buckets, keys that stay in place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from polars.testing.parametric import dataframes

from stages import keys
from stages.clock import Watermarks
from stages.keys import hashed, key_hash, shard_of
from stages.operator import HOLD, PENDING
from stages.state.buckets import TIMES, Buckets
from stages.state.index import DEADLINE, SCHEMA, HoldOwner, Index, Size
from stages.state.store import ENCODING, DictStore, decode, encode
from stages.state.summary import summarize
from stages.state_tables import KeyedTable
from stages.strategies.histogram import histogram
from tests.support.examples import share
from tests.support.model import MAX_TIME, MIN_TIME
from tests.support.places import ROOT
from tests.support.runs import StageRun
from tests.support.strategies import us
from windowing import FixedWindows, Windowing
from windowing.clocks import WATERMARK, Times
from windowing.columns import WINDOW_COLUMNS, WINDOW_END, WINDOW_START

law = share(5)
STAGE = "grouping"

# Bytes


def test_a_slice_takes_no_more_than_its_rows_also_where_text_is_inside_of_structs() -> None:
    texts = pl.DataFrame({"text": [f"{number:040}" for number in range(10_000)]})
    inside = texts.select(row=pl.struct("text"), rows=pl.concat_list(pl.struct("text")))
    for frame in (texts, inside):
        assert len(encode(frame.slice(5_000, 100))) < 30_000
        assert_frame_equal(decode(encode(frame.slice(5_000, 100)))[0], frame.slice(5_000, 100))


TYPES = [
    pl.Int8,
    pl.Int64,
    pl.UInt64,
    pl.Float32,
    pl.Float64,
    pl.Boolean,
    pl.String,
    pl.Binary,
    pl.Date,
    pl.Time,
    pl.Datetime("us", "UTC"),
    pl.Datetime("ns"),
    pl.Duration("ms"),
    pl.Decimal(12, 2),
    pl.List(pl.Int64),
    pl.List(pl.List(pl.String)),
    pl.Struct({"a": pl.Int32, "b": pl.List(pl.Boolean)}),
    pl.Null,
]
facts = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(), max_size=3)


@law
@given(dataframes(allowed_dtypes=TYPES, max_cols=4, max_size=5), facts)
def test_a_frame_and_its_facts_are_read_back_as_they_were(frame: pl.DataFrame, facts: dict[str, Any]) -> None:
    read, told = decode(encode(frame, facts))
    assert read.schema == frame.schema
    assert_frame_equal(read, frame)
    assert told == facts


def test_every_type_of_value_is_read_back_with_nulls() -> None:
    frame = pl.DataFrame(
        {
            "text": ["ü", None],
            "bytes": [b"\x00\xff", None],
            "list": [[1, None], None],
            "empty list": [[], None],
            "time": [datetime(2026, 1, 1, 12, tzinfo=UTC), None],
            "money": [Decimal("1.50"), None],
            "kind": pl.Series(["a", None], dtype=pl.Categorical),
            "level": pl.Series(["high", None], dtype=pl.Enum(["low", "high"])),
            "nothing": [None, None],
        }
    )
    for part in (frame, frame.clear(), frame.select()):
        assert_frame_equal(decode(encode(part))[0], part)


def test_the_same_frame_and_facts_give_the_same_bytes() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert encode(frame, {"b": 1, "a": 2}) == encode(frame.clone(), {"a": 2, "b": 1})


def test_another_version_of_the_encoding_is_refused() -> None:
    value = encode(pl.DataFrame({"a": [1]}))
    assert value[0] == ENCODING
    other = bytes([ENCODING + 1]) + value[1:]
    with pytest.raises(
        ValueError,
        match=f"state of encoding {ENCODING + 1}; this version of beamlike reads encoding {ENCODING}",
    ):
        decode(other)


# The index


def rows(*holds: tuple[int, str | None, int | None]) -> pl.DataFrame:
    """Returns state rows of (bucket, key, hold), due ten after the hold, or at 100."""
    return pl.DataFrame(
        [(bucket, key, (hold or 0), (hold or 90) + 10, hold, 2) for bucket, key, hold in holds],
        schema={
            "__bucket": pl.Int64,
            "key": pl.String,
            WINDOW_START: pl.Int64,
            WINDOW_END: pl.Int64,
            HOLD: pl.Int64,
            PENDING: pl.Int64,
        },
        orient="row",
    )


CLOCKS = (WATERMARK,)
TABLE = KeyedTable(
    row="window",
    waits="waits",
    keys=("key",),
    bounds=WINDOW_COLUMNS,
    schema=pl.Schema(),
    incoming=pl.Schema(),
)
SIZES = {1: Size(1, 2, 5, 3), **{bucket: Size(1, 1, 4) for bucket in (2, 4, 5, 6)}}
DEADLINES = {WATERMARK: pl.col(WINDOW_END)}


def new_index() -> Index:
    return Index.load(DictStore(), STAGE, CLOCKS)


def index_of(*holds: tuple[int, str | None, int | None]) -> Index:
    return new_index().replace([], summarize(rows(*holds), TABLE, DEADLINES, SIZES))


def at(watermark: int) -> Times:
    return Times().advance(Times.of(watermark))


def test_a_bucket_is_due_at_the_first_deadline_in_it() -> None:
    index = index_of((1, "a", 5), (1, "b", 3), (4, "c", 30), (6, "d", None))
    assert list(index.sizes()) == [1, 4, 6]
    assert index.rows == 4
    assert [index.due(at(time)) for time in (12, 13, 40, 100)] == [[], [1], [1, 4], [1, 4, 6]]


def test_replacing_describes_the_touched_buckets_anew_and_leaves_the_others() -> None:
    index = index_of((1, "a", 5), (4, "c", 30), (6, "d", None))
    new = summarize(rows((4, "x", 7), (5, "y", 8)), TABLE, DEADLINES, SIZES)
    index = index.replace([1, 4, 5], new)  # nothing is left in bucket 1
    assert list(index.sizes()) == [4, 5, 6]
    assert index.due(at(18)) == [4, 5]
    assert str(index.holder) == "key x in [1970-01-01T00:00:00.000007Z, 1970-01-01T00:00:00.000017Z)"


def test_adding_describes_what_comes_beside_the_rows_of_a_bucket() -> None:
    index = index_of((1, "a", 5), (4, "c", 30))
    more = summarize(
        rows((1, "x", 3), (5, "y", None)),
        TABLE,
        DEADLINES,
        {1: Size(0, 1, 0, 7), 5: Size(0, 1, 0, 2)},
    )
    index = index.add(more)
    assert index.sizes() == {1: Size(1, 3, 5, 10), 4: SIZES[4], 5: Size(0, 1, 0, 2)}
    assert (index.rows, index.pending, index.bytes) == (4, 8, 21)
    assert index.due(at(13)) == [1]
    assert str(index.holder) == "key x in [1970-01-01T00:00:00.000003Z, 1970-01-01T00:00:00.000013Z)"
    assert index.add(more.clear()) is index


def test_the_holder_is_the_key_and_window_with_the_least_hold() -> None:
    assert new_index().holder is None
    assert index_of((1, "a", None)).holder is None
    holder = index_of((1, "a", 9), (1, None, 2), (2, "b", 3)).holder
    assert holder == HoldOwner(2, "null", 2, 12)


@pytest.mark.parametrize(
    "name", [*(name for name in SCHEMA if not name.startswith("__")), DEADLINE + WATERMARK]
)
def test_a_key_may_be_named_as_a_column_of_the_index(name: str) -> None:
    frame = rows((1, "a", 5)).with_columns(pl.lit("b").alias(name))
    summary = summarize(frame, attrs.evolve(TABLE, keys=("key", name)), DEADLINES, SIZES)
    columns = ("rows", "keys", "bytes", DEADLINE + WATERMARK, "hold", "holder_key")
    assert summary.select(columns).rows() == [(1, 1, 5, 15, 5, "a, b")]


def test_an_index_is_read_back_with_its_watermarks_and_clocks() -> None:
    store = DictStore()
    assert Index.load(store, STAGE, CLOCKS).watermarks == Watermarks(MIN_TIME, MIN_TIME)
    times = Times().advance(Times.of(MAX_TIME, 8, {33: 7}))
    marks, holds = Watermarks(MAX_TIME, 3), {1: histogram(pl.Series([5, 5, 7]))}
    saved = attrs.evolve(index_of((1, "a", 5)), watermarks=marks, holds=holds, times=times)
    saved.save(store, STAGE)
    # The process that saved an index has it in memory, and any other decodes it.
    assert Index.load(store, STAGE, CLOCKS) is saved
    read = Index.decoded(store.values[STAGE, "index"], CLOCKS)
    assert (read.watermarks, read.holds, read.times) == (marks, holds, times)
    assert_frame_equal(read.buckets, saved.buckets)
    assert Index.load(store, "another", CLOCKS).sizes() == {}


def test_an_index_of_before_there_were_histograms_of_holds_is_read_and_they_are_made() -> None:
    run = StageRun(Windowing(FixedWindows(us(10))))
    run.step([("a", 1, 5), ("a", 2, 15), ("b", 1, 17)], 0)
    frame, facts = decode(run.store.values["grouping", "index"])
    assert "holds" not in facts  # without percentiles there are none
    run.store.put("grouping", "index", encode(frame, {**facts, "percentiles": {}}))
    assert run.step([], 1, percentiles={66: 5}).held == [9, 19, 19]


# Places of keys. Checkpoints depend on these numbers: they must never change.

GOLDEN: dict[str, tuple[pl.Series, list[int]]] = {
    "text": (
        pl.Series(["", "a", "ada", "Ünïcode", None]),
        [
            17969918002310452037,
            3592636987452369503,
            9190650659889571142,
            14111431702522988658,
            10120618241204775652,
        ],
    ),
    "whole numbers": (
        pl.Series([0, -1, 2**62, None]),
        [0, 13029008266876403067, 1360429390938723525, 16294208416658607535],
    ),
    "flags": (pl.Series([True, False]), [17984252548286272785, 17388315026619563283]),
    "dates": (
        pl.Series([date(2026, 1, 1), date(1969, 12, 31)]),
        [11451386686950201279, 13029008266876403067],
    ),
    "times": (
        pl.Series([datetime(2026, 1, 1, 12, 0, 0, 5), datetime(1969, 1, 1)]),
        [7144178170464676600, 7888855137841617822],
    ),
    "times with a zone": (pl.Series([datetime(2026, 1, 1, 12, tzinfo=UTC)]), [11511226743562021415]),
    "decimals": (pl.Series([Decimal("1.50")]), [6881808556604284677]),
}
TWO_KEYS = pl.DataFrame({"a": ["ada", None], "b": [1, 2]})


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_hash_of_a_key_never_changes(kind: str) -> None:
    keys, hashes = GOLDEN[kind]
    assert keys.to_frame("k").select(key_hash(["k"])).to_series().to_list() == hashes
    assert hashed(keys.to_frame("k"), ["k"]).to_list() == hashes


def test_the_hash_of_several_keys_never_changes() -> None:
    hashes = TWO_KEYS.select(key_hash(["a", "b"])).to_series().to_list()
    assert hashes == [456483718228328676, 11993401744203876077]
    assert hashed(TWO_KEYS, ["a", "b"]).to_list() == hashes
    assert TWO_KEYS.select(shard_of(["a", "b"], 5)).rows() == [(1,), (2,)]


def test_each_key_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: Counter[str] = Counter()

    def counting(values: pl.Series) -> pl.Series:
        hashed[values.name] += len(values)
        return own(values)

    own = keys._hash_column
    monkeypatch.setattr(keys, "_hash_column", counting)
    frame = pl.DataFrame({name: [1, 2, 3] for name in "abcd"}).lazy()
    assert frame.select(shard_of(list("abcd"), 5)).collect().height == 3
    assert hashed == dict.fromkeys("abcd", 3)


def test_another_process_places_keys_the_same() -> None:
    code = """
import json, polars as pl
from stages.keys import shard_of
keys = pl.DataFrame({"k": [f"user {n}" for n in range(50)] + [None], "n": range(51)})
print(json.dumps(keys.select(shard_of(["k", "n"], 5).alias("s")).rows()))
"""
    root = ROOT
    there = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    keys = pl.DataFrame({"k": [f"user {n}" for n in range(50)] + [None], "n": range(51)})
    here = keys.select(shard_of(["k", "n"], 5).alias("s")).rows()
    assert [tuple(row) for row in json.loads(there.stdout)] == here


@given(st.lists(st.none() | st.text(), min_size=1), st.integers(1, 300), st.randoms())
def test_a_key_has_one_place_wherever_it_stands(keys: list[str | None], shards: int, random: Any) -> None:
    frame = pl.DataFrame({"k": keys}, schema={"k": pl.String})
    placed = frame.with_columns(shard_of(["k"], shards).alias("shard"))
    assert placed["shard"].is_between(0, shards - 1).all()
    alone = frame.unique(maintain_order=True).select(shard_of(["k"], shards)).to_series().to_list()
    assert dict(zip(frame.unique(maintain_order=True)["k"], alone, strict=True)) == dict(
        zip(placed["k"], placed["shard"], strict=True)
    )


def test_keys_spread_over_shards_and_within_a_shard_over_buckets() -> None:
    keys = pl.DataFrame({"k": range(4_000)})
    eight = Buckets(("k",), None, tuple(part * TIMES for part in range(8, 16)))
    placed = keys.select(shard_of(["k"], 5).alias("shard"), eight.number().alias("bucket"))
    counts = placed.group_by("shard", "bucket").len()["len"]
    assert len(counts) == 40
    assert counts.min() > 60
    assert counts.max() < 140


def test_without_a_key_there_is_one_place() -> None:
    assert pl.DataFrame({"n": [1, 2]}).with_columns(shard_of([], 5).alias("s"))["s"].to_list() == [0, 0]
