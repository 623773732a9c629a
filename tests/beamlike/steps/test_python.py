"""Steps that call user functions: their arguments, the event time of their results, and failures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import StepError
from tests.support.pipelines import frame, plays
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START


def run(collection: bl.Collection, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows after the one step that made the collection."""
    return collection.node.origin.apply(rows.lazy()).collect()


def test_map_gives_a_dict_for_a_dict_and_keeps_the_event_time():
    seen = []

    def fn(row):
        seen.append(row)
        return {"label": f"{row['user']}:{row['score']}"}

    mapped = plays().map(fn, schema={"label": str})
    assert mapped.schema == pl.Schema({"label": pl.String()})
    result = run(mapped, frame(4, 5))
    assert result.to_dict(as_series=False) == {"label": ["user 1:4", "user 2:5"], EVENT_TIME: [0, 1_000_000]}
    assert set(seen[0]) == {"user", "score", "rate", "at", "tick", "won"}


def test_map_without_a_schema_keeps_the_one_of_its_input():
    mapped = plays().map(lambda row: row | {"score": row["score"] + 1})
    assert mapped.schema == plays().schema
    assert run(mapped, frame(1))["score"].to_list() == [2]


def test_flat_map_repeats_event_time_and_window():
    several = (
        plays()
        .window_into(bl.FixedWindows("2s"))
        .flat_map(lambda row: ({"n": n} for n in range(row["score"])), schema={"n": int})
    )
    windowed = several.node.inputs[0].origin.apply(frame(2, 0, 1).lazy()).collect()
    result = run(several, windowed)
    assert result["n"].to_list() == [0, 1, 0]
    assert result[EVENT_TIME].to_list() == [0, 0, 2_000_000]
    assert result[WINDOW_START].to_list() == [0, 0, 2_000_000]
    assert result[WINDOW_END].to_list() == [2_000_000, 2_000_000, 4_000_000]


@pytest.mark.parametrize("given", [lambda frame: frame, pl.DataFrame.to_arrow])
def test_map_batches_gets_the_users_columns_as_a_frame_and_its_schema_is_inferred(given):
    def fn(rows: pl.DataFrame) -> object:
        assert isinstance(rows, pl.DataFrame)
        assert not [name for name in rows.columns if name.startswith("__")]
        return given(rows.select("user", half=pl.col("score") / 2.0))

    mapped = plays().map_batches(fn)
    assert mapped.schema == pl.Schema({"user": pl.String(), "half": pl.Float64()})
    result = run(mapped, frame(3, 4))
    assert result.to_dict(as_series=False) == {
        "user": ["user 0", "user 1"],
        "half": [1.5, 2.0],
        EVENT_TIME: [0, 1_000_000],
    }


def test_map_batches_that_changes_the_number_of_rows_is_refused():
    mapped = plays().map_batches(lambda table: table.slice(0, 1))
    with pytest.raises(StepError, match=r"step 'plays.map_batches': .* 1 rows for 2, .*use flat_map"):
        run(mapped, frame(1, 2))


def test_a_function_that_fails_on_an_empty_frame_needs_a_schema():
    def fn(rows: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"first": [rows["user"][0]] * rows.height})

    with pytest.raises(bl.PlanError, match=r"'plays.map_batches': .*empty frame.*IndexError.*schema="):
        plays().map_batches(fn)
    mapped = plays().map_batches(fn, schema={"first": str})
    assert run(mapped, frame(1, 2))["first"].to_list() == ["user 1", "user 1"]


def test_a_type_that_an_empty_frame_does_not_show_needs_a_schema():
    with pytest.raises(bl.PlanError, match=r"the type of a is unknown for an empty frame; give schema="):
        plays().map_batches(lambda table: pl.DataFrame({"a": [None] * table.height}))


def test_map_batches_may_widen_but_not_lose():
    def narrow(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(n=pl.col("score").cast(pl.Int32), at=pl.col("at").cast(pl.Datetime("ns", "UTC")))

    wide = plays().map_batches(narrow, schema={"n": float, "at": datetime})
    assert run(wide, frame(7)).schema["n"] == pl.Float64
    assert run(wide, frame(7)).schema["at"] == pl.Datetime("us", "UTC")
    lossy = plays().map_batches(lambda table: table.select(["rate"]), schema={"rate": int})
    with pytest.raises(StepError, match="column 'rate' as Float64, expected Int64; cast it"):
        run(lossy, frame(7))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda table: None, "expects a polars DataFrame, got NoneType"),
        (lambda table: 3, "expects a polars DataFrame, got int"),
        (lambda table: table.select(b="score"), "gave the columns b, expected a"),
    ],
)
def test_map_batches_says_what_was_wrong_with_the_table(result, message):
    with pytest.raises(StepError, match=message):
        run(plays().map_batches(result, schema={"a": int}), frame(1))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "expected a dict with the keys count, got None"),
        ([{"count": 1}], "expected a dict with the keys count, got"),
        ({}, "the key 'count' is missing"),
        ({"cuont": 1}, "the key 'count' is missing; did you mean 'cuont'"),
        ({"count": 1, "more": 2}, "the key 'more' is not declared"),
        ({"count": "1"}, "column 'count' was declared Int64: .*String"),
        ({"count": 1.5}, "column 'count' was declared Int64: .*1.5"),
        ({"count": 2**70}, "column 'count' was declared Int64"),
    ],
)
def test_map_says_what_was_wrong_with_the_row(result, message):
    with pytest.raises(StepError, match=f"step 'plays.map': {message}|step 'plays.map': .*; {message}"):
        run(plays().map(lambda row: result, schema={"count": int}), frame(1))


@pytest.mark.parametrize("result", [None, 3, "text", {"n": 1}])
def test_flat_map_says_that_it_expects_several_dicts(result):
    with pytest.raises(StepError, match="flat_map expects several dicts for a row"):
        run(plays().flat_map(lambda row: result, schema={"n": int}), frame(1))


def test_an_error_in_a_function_keeps_its_type_and_says_in_which_step():
    def fn(row):
        raise ZeroDivisionError("the user's")

    def late(row):
        yield row
        raise ZeroDivisionError("the user's")

    for failing in (plays().map(fn, name="risky"), plays().flat_map(late, name="risky")):
        with pytest.raises(ZeroDivisionError) as caught:
            run(failing, frame(1))
        assert "step 'risky'" in caught.value.__notes__[0]


def test_schemas_are_written_in_python_polars_or_narwhals_types():
    declared = {
        "a": int,
        "b": pl.Float32,
        "c": nw.String,
        "d": datetime,
        "e": nw.Datetime("ms"),
        "f": pl.List(pl.Int8),
        "g": bytes,
        "h": list[str],
        "i": bool,
    }
    mapped = plays().map(dict, schema=declared)
    assert mapped.schema == pl.Schema(
        {
            "a": pl.Int64(),
            "b": pl.Float32(),
            "c": pl.String(),
            "d": pl.Datetime("us", "UTC"),
            "e": pl.Datetime("ms"),
            "f": pl.List(pl.Int8()),
            "g": pl.Binary(),
            "h": pl.List(pl.String()),
            "i": pl.Boolean(),
        }
    )


def test_datetimes_of_any_zone_are_taken_as_utc():
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    for given, expected in ((moment, 10), (moment.replace(tzinfo=None), 12)):
        mapped = plays().map(lambda row, given=given: {"at": given}, schema={"at": datetime})
        assert run(mapped, frame(1))["at"].to_list() == [datetime(2026, 1, 1, expected, tzinfo=UTC)]


def test_nulls_pass_through_python():
    mapped = plays().map(lambda row: {"score": None, "text": row["user"]}, schema={"score": int, "text": str})
    result = run(mapped, frame(1, user=pl.Series([None], dtype=pl.String)))
    assert result.select("score", "text").rows() == [(None, None)]


def test_dead_letters_can_be_mapped():
    letters = pl.DataFrame({"step": ["plays"], "error": ["null"], "row": ["{}"]})
    mapped = plays().dead_letters().map(lambda row: {"n": len(row["error"])}, schema={"n": int})
    assert run(mapped, letters).to_dict(as_series=False) == {"n": [4]}
    several = plays().dead_letters().flat_map(lambda row: [row, row])
    assert len(run(several, letters)) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": 1.5}, "found value of type Float64: 1.5"),
        ({"x": 1, "y": 2}, "the key 'y' is not declared; expected x"),
        ([1], r"expected a dict with the keys x, got \[1\]"),
    ],
)
def test_what_does_not_fit_inside_of_a_struct_is_not_left_out(value, message):
    mapped = plays().map(lambda row: {"s": value}, schema={"s": {"x": int}})
    with pytest.raises(StepError, match=message):
        run(mapped, frame(4))
