"""Event time: every value is either a time within the limits or a dead letter that shows it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.rows.event_time import (
    DEAD_LETTERS,
    check_event_time_type,
    count_rows,
    event_times,
    read_event_time,
    split_dead_letters,
)
from windowing.columns import EVENT_TIME
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_767_268_800_000_000


def times(values: Any, dtype: Any = None, unit: str | None = None) -> list[int | None]:
    frame = pl.DataFrame({"t": pl.Series(values, dtype=dtype)})
    found = read_event_time(frame.lazy(), "t", unit).collect()[EVENT_TIME].to_list()
    # Rows in memory are read in another way, unless one of them has no event time.
    in_memory = event_times(frame, "t", unit, None)
    assert (None if in_memory is None else in_memory.to_list()) == (None if None in found else found)
    return found


def letters(frame: pl.DataFrame, unit: str | None = None) -> pl.DataFrame:
    _, dead = split_dead_letters(read_event_time(frame.lazy(), "t", unit), "plays", "t", unit)
    return dead.collect()


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00Z",
        "2026-01-01t12:00:00z",
        "2026-01-01T12:00:00",
        "2026-01-01 12:00:00",
        " 2026-01-01 12:00:00.000 ",
        "2026-01-01T12:00",
        "2026-01-01 12:00Z",
        "2026-01-01T14:00:00+02:00",
        "2026-01-01T14:00:00.0+02",
        "2026-01-01 06:30:00-0530",
        "2026-01-01 12:00:00 UTC",
        "20260101T120000Z",
        "20260101T120000",
    ],
)
def test_iso_8601_text_is_read_in_all_its_usual_forms(text: str) -> None:
    assert times([text, "2026-01-01T12:00:00Z"]) == [NOON_US, NOON_US]


@pytest.mark.parametrize(
    "text",
    ["", " ", "abc", "12:00", "1767268800", "2026-02-30T00:00:00Z", "2026-01-01T24:00:01Z", "2026-1", "now"],
)
def test_text_that_is_no_time_is_null(text: str) -> None:
    assert times([text, "2026-01-01T12:00:00Z", None]) == [None, NOON_US, None]


def test_a_date_is_its_first_moment_in_utc() -> None:
    midnight = NOON_US - 12 * 3_600_000_000
    assert times(["2026-01-01"]) == times([date(2026, 1, 1)]) == [midnight]
    assert times([date(1969, 12, 31)]) == [-86_400_000_000]


def test_fractions_finer_than_a_microsecond_round_down_also_before_1970() -> None:
    assert times(["1970-01-01T00:00:00.0000019Z", "1969-12-31T23:59:59.9999999Z"]) == [1, -1]
    assert times([1_999, -1], unit="ns") == [1, -1]
    assert times([1_999, -1], dtype=pl.Datetime("ns")) == [1, -1]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/St_Johns"])
def test_a_datetime_of_any_unit_and_zone_is_its_moment(unit: Any, zone: str | None) -> None:
    values = pl.Series([NOON]).cast(pl.Datetime(unit, "UTC"))
    values = values.dt.replace_time_zone(None) if zone is None else values.dt.convert_time_zone(zone)
    assert times(values) == [NOON_US]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64, pl.Int128, pl.String])
def test_whole_numbers_count_their_unit_since_1970(unit: str, per_second: int, dtype: Any) -> None:
    assert times(pl.Series([1_767_268_800 * per_second]).cast(dtype), unit=unit) == [NOON_US]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(number=st.integers(-(2**63), 2**63 - 1))
def test_no_number_wraps_around(unit: str, number: int) -> None:
    exact = number // 1_000 if unit == "ns" else number * {"s": 10**6, "ms": 10**3, "us": 1}[unit]
    expected = exact if MIN_TIME <= exact < GLOBAL_WINDOW_END else None
    assert times([number], dtype=pl.Int64, unit=unit) == [expected]
    assert times([str(number)], unit=unit) == [expected]


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_datetime_wraps_around(number: int) -> None:
    def within(us: int) -> int | None:
        return us if MIN_TIME <= us < GLOBAL_WINDOW_END else None

    assert times([number], dtype=pl.Datetime("ms")) == [within(number * 1_000)]
    assert times([number], dtype=pl.Datetime("us", "UTC")) == [within(number)]
    assert times([number // 2**32], dtype=pl.Date) == [within(number // 2**32 * 86_400_000_000)]


def test_the_limits_are_half_open() -> None:
    assert times([MIN_TIME - 1, MIN_TIME, GLOBAL_WINDOW_END - 1, GLOBAL_WINDOW_END], unit="us") == [
        None,
        MIN_TIME,
        GLOBAL_WINDOW_END - 1,
        None,
    ]


@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),
    st.integers(-1439, 1439),
    st.sampled_from(["T", " "]),
)
def test_every_time_that_python_writes_is_read(at: datetime, minutes: int, between: str) -> None:
    zoned = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    naive_us = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    written = [at.isoformat(between), zoned.isoformat(between)]
    assert times(written) == [naive_us, naive_us - minutes * 60_000_000]


def test_the_users_column_stays_as_it_is() -> None:
    frame = pl.DataFrame({"t": ["abc", "2026-01-01"], "n": [1, 2]})
    assert read_event_time(frame.lazy(), "t", None).collect().drop(EVENT_TIME).equals(frame)


def test_every_row_is_either_good_or_a_dead_letter() -> None:
    frame = pl.DataFrame({"t": ["2026-01-01T12:00:00Z", "abc", None], "user": ["u1", "u2", "u3"]})
    timed = read_event_time(frame.lazy(), "t", None)
    good, dead = split_dead_letters(timed, "plays", "t")
    assert good.collect().rows() == [("2026-01-01T12:00:00Z", "u1", NOON_US)]
    assert dead.collect_schema() == DEAD_LETTERS
    assert dead.collect().rows() == [
        ("plays", "event time column 't' is not a time: 'abc'", '{"t":"abc","user":"u2"}'),
        ("plays", "event time column 't' is null", '{"t":null,"user":"u3"}'),
    ]
    assert count_rows(timed).collect().rows() == [(3, 2)]


@pytest.mark.parametrize(
    ("values", "unit", "why"),
    [
        (pl.Series([2**63 - 1]), "s", "out of range: 9223372036854775807 s"),
        (pl.Series(["9223372036854775807"]), "ms", "out of range: '9223372036854775807'"),
        (
            pl.Series([1_767_268_800_000_000]),
            "s",
            "out of range: 1767268800000000 s; with timestamp_unit='us' it is 2026-01-01T12:00:00.000000Z",
        ),
        (
            pl.Series(["1767268800000000000"]),
            "ms",
            "out of range: '1767268800000000000'; with timestamp_unit='ns' it is 2026-01-01T12:00:00.000000Z",
        ),
        (
            pl.Series([1.7672688e15]),
            "s",
            "out of range: 1767268800000000.0 s; with timestamp_unit='us' it is 2026-01-01T12:00:00.000000Z",
        ),
        (pl.Series(["12.5"]), "ms", "not a time: '12.5'"),
        (pl.Series([2**63 - 1]).cast(pl.Datetime("us", "UTC")), None, "out of range: 9223372036854775807 us"),
        (pl.Series([2**31 - 1]).cast(pl.Int32).cast(pl.Date), None, "out of range: 2147483647 days"),
        (pl.Series(["x" * 500]), None, f"not a time: '{'x' * 80}'"),
    ],
)
def test_a_dead_letter_says_what_is_wrong(values: pl.Series, unit: str | None, why: str) -> None:
    (error,) = letters(pl.DataFrame({"t": values}), unit)["error"]
    assert error == f"event time column 't' is {why}"


def test_a_dead_letter_holds_values_of_every_type() -> None:
    row = {
        "t": None,
        "bytes": b"\xff",
        "at": NOON,
        "day": date(2026, 1, 1),
        "took": timedelta(seconds=90),
        "list": [NOON, None],
        "struct": {"at": NOON, "raw": b"a", "n": float("nan")},
        "nothing": None,
    }
    frame = pl.DataFrame([row], schema_overrides={"t": pl.String}, strict=False).with_columns(
        far=pl.lit(2**63 - 1).cast(pl.Datetime("us")), farther=pl.lit(2**31 - 1).cast(pl.Int32).cast(pl.Date)
    )
    at = "2026-01-01T12:00:00.000000Z"
    (text,) = letters(frame)["row"]
    assert json.loads(text) == {
        "t": None,
        "bytes": "/w==",
        "at": at,
        "day": "2026-01-01",
        "took": "PT1M30S",
        "list": [at, None],
        "struct": {"at": at, "raw": "YQ==", "n": None},
        "nothing": None,
        "far": "9223372036854775807us",
        "farther": "2147483647d",
    }


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(pl.Datetime("ns"), None), (pl.Date(), None), (pl.String(), None), (pl.String(), "s"), (pl.Int8(), "s")],
)
def test_types_that_hold_times_are_accepted(dtype: pl.DataType, unit: str | None) -> None:
    check_event_time_type(dtype, unit)


@pytest.mark.parametrize(
    ("dtype", "unit", "what"),
    [
        (pl.Int64(), None, "give timestamp_unit="),
        (pl.Datetime("us"), "s", "takes no timestamp_unit='s'"),
        (pl.Float64(), None, "is Float64: give timestamp_unit='s'"),
        (pl.Float32(), None, "is Float32: give timestamp_unit='s'"),
        (
            pl.Float32(),
            "s",
            "is Float32, in which the times of today are two minutes apart.* cast it to Float64 in a step",
        ),
        (pl.Float32(), "ms", "is Float32, in which the times of today are two minutes apart"),
        (pl.Boolean(), None, "is Boolean; expected Datetime"),
        (pl.List(pl.Int64()), "s", r"is List\(Int64\); expected"),
    ],
)
def test_types_that_hold_no_times_are_refused(dtype: pl.DataType, unit: str | None, what: str) -> None:
    with pytest.raises(TypeError, match=rf"step 'plays': event time column 'at'.*{what}"):
        check_event_time_type(dtype, unit, column="at", step="plays")


def test_a_unit_that_is_none_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'mss' is no unit.*did you mean 'ms'"):
        check_event_time_type(pl.Int64(), "mss")


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_floats_count_their_unit_since_1970_to_the_nearest_microsecond(unit: str, per_second: float) -> None:
    assert times([0.25 * per_second, -2.0 * per_second], pl.Float64, unit) == [250_000, -2_000_000]
    assert times([1_767_268_800.123456 * per_second], pl.Float64, unit) == [NOON_US + 123_456]


def test_short_floats_are_refused_when_the_source_is_declared_and_can_be_cast_before() -> None:
    rows = bl.Rows([{"at": 1.5}], schema={"at": pl.Float32})
    watermark = bl.MonotonousTimestamps()
    with pytest.raises(TypeError, match="step 'plays': event time column 'at' is Float32"):
        bl.Pipeline("p").read("plays", rows, timestamp="at", timestamp_unit="s", watermark=watermark)
    p, out = bl.Pipeline("p"), bl.Memory()
    cast = p.read("plays", rows).with_columns(bl.col("at").cast(nw.Float64))
    timed = cast.with_watermark(watermark, timestamp="at", timestamp_unit="s")
    timed.with_columns(time=bl.event_time()).write("out", out)
    p.run()
    assert out.frame()["time"].dt.epoch("us").to_list() == [1_500_000]


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_float_is_a_time_in_the_limits_or_a_dead_letter(number: float) -> None:
    micros = round(number * 1e6) if abs(number) < 1e300 else None
    exact = micros if micros is not None and MIN_TIME <= micros < GLOBAL_WINDOW_END else None
    (found,) = times([number], pl.Float64, "s")
    assert found == exact or abs(found - exact) <= 1  # type: ignore[operator]  # a half is rounded either way


@pytest.mark.parametrize(
    ("number", "why"),
    [(float("nan"), "not a time: NaN"), (float("inf"), "not a time: inf"), (1e20, "out of range: 1e+20 s")],
)
def test_the_letter_of_a_float_says_why_it_is_no_time(number: float, why: str) -> None:
    (error,) = letters(pl.DataFrame({"t": [number]}), "s")["error"]
    assert error == f"event time column 't' is {why}"
