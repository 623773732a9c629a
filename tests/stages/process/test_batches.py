"""Functions of frames: called once for all keys, with the timers that are due, and again where new ones are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import beamlike as bl

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = [("a", 0), ("b", 2), ("a", 5), ("a", 40), ("b", 50), ("c", 51)]


class Silence(bl.Process):
    """Emits a user after ten seconds without a row."""

    last = bl.Value(datetime)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.last = self.time
        self.quiet.after("10s")

    def on_quiet(self) -> Any:
        yield {"user": self.key.user, "last": self.last}


def silence(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Emits a user after ten seconds without a row, in columns: at the next row, or when the timer is due."""
    limit = pl.duration(seconds=10)
    last = pl.concat(
        [state.select("user", event_time="last").drop_nulls(), rows.select("user", "event_time")]
    )
    gaps = last.with_columns(before=pl.col("event_time").shift(1).over("user", order_by="event_time"))
    missed = gaps.filter(pl.col("event_time") - pl.col("before") >= limit)
    # A timer is due together with the rows, one of which may be before the timer's time.
    first = rows.group_by("user").agg(first=pl.col("event_time").min())
    silent = due.join(first, on="user", how="left").filter(
        pl.col("first").is_null() | (pl.col("first") >= pl.col("time"))
    )
    fired = silent.join(state, on="user").select("user", "last", "event_time")
    known = fired.select("user", "last")
    alerts = missed.select("user", last="before", event_time=pl.col("before") + limit)
    alerts = pl.concat([fired, alerts.join(known, on=["user", "last"], how="anti")])
    # A silence is reported only once.
    newest = (
        last.join(known, left_on=["user", "event_time"], right_on=["user", "last"], how="anti")
        .group_by("user")
        .agg(last=pl.col("event_time").max())
    )
    after = state.select("user", "quiet").join(newest, on="user", how="left")
    moved = pl.col("user").is_in(rows["user"].unique().to_list())
    return alerts, after.with_columns(quiet=pl.when(moved).then(pl.col("last") + limit).otherwise("quiet"))


def stream(*bundles: list[tuple[str, int]], until: int | None = None) -> bl.TestStream:
    found = bl.TestStream({"user": str, "at": int})
    for bundle in bundles:
        found = found.add_elements([{"user": user, "at": at} for user, at in bundle])
        found = found.advance_watermark_to(max(at for _, at in bundle))
    return found if until is None else found.advance_watermark_to(until)


def alerts(rows: bl.Collection, how: str) -> bl.Collection:
    schema = {"user": str, "last": datetime}
    if how == "process":
        return rows.group_by("user").process(Silence(), schema)
    timers = {"quiet": bl.EventTimer()}
    return rows.group_by("user").process_batches(silence, schema, state={"last": datetime}, timers=timers)


def told(given: bl.TestStream, how: str) -> list[tuple[Any, ...]]:
    rows = bl.Pipeline("p").read("rows", given, timestamp="at", timestamp_unit="s")
    return sorted(alerts(rows, how).collect()[["user", "last", "event_time"]].rows())


def after(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize("bundles", [[ROWS], [ROWS[:2], ROWS[2:]], [[row] for row in ROWS]])
@pytest.mark.parametrize("how", ["process", "process_batches"])
def test_silences_are_the_same_however_rows_are_bundled(
    bundles: list[list[tuple[str, int]]], how: str
) -> None:
    expected = [("a", 5), ("a", 40), ("b", 2), ("b", 50), ("c", 51)]
    assert told(stream(*bundles), how) == [(user, after(at), after(at + 10)) for user, at in expected]


def rows_of(given: bl.TestStream) -> bl.Collection:
    return bl.Pipeline("p").read("rows", given, timestamp="at", timestamp_unit="s")


def test_rows_of_keys_on_which_it_raises_are_dead_letters_and_the_others_stand() -> None:
    def picky(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> Any:
        if "b" in rows["user"]:
            raise ValueError("no b")
        counted = rows.group_by("user").agg(pl.len().cast(pl.Int64).alias("n"), pl.col("event_time").last())
        return counted, state

    given = rows_of(stream(ROWS).advance_watermark_to_infinity())
    out = given.group_by("user").process_batches(picky, {"user": str, "n": int}, state={"x": int})
    found, letters = out.collect(), out.dead_letters().collect()
    assert sorted(found[["user", "n"]].rows()) == [("a", 3), ("c", 1)]
    assert letters["error"].to_list() == ["ValueError: no b"] * 2


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda rows, state: rows,
            "expected a tuple of two polars DataFrames, the emitted rows and the state, got polars DataFrame",
        ),
        (
            lambda rows, state: (rows, state),
            "the emitted frame must have the columns user, event_time; it has user, at, ",
        ),
        (
            lambda rows, state: (rows.select("user", pl.col("event_time") - pl.duration(days=1)), state),
            "must not be null, nor before the first of the rows and timers",
        ),
        (
            lambda rows, state: (rows.select("user", "event_time"), pl.concat([state, state])),
            "the state has several rows of one key; give one for each",
        ),
        (
            lambda rows, state: (
                rows.select("user", "event_time"),
                state.with_columns(user=pl.lit("z")).head(1),
            ),
            "the state has a key that the function was not called with",
        ),
        (
            lambda rows, state: (rows.select("user", "event_time"), state.with_columns(x=pl.lit("text"))),
            "the state: column 'x' is String, and was declared Int64; cast it",
        ),
    ],
)
def test_what_it_must_not_give_is_said(wrong: Any, text: str) -> None:
    given = rows_of(stream([("a", 1)]).advance_watermark_to_infinity())
    out = given.group_by("user").process_batches(
        lambda rows, state, due: wrong(rows, state), {"user": str}, state={"x": int}
    )
    (error,) = out.dead_letters().collect()["error"]
    assert text in error


def test_a_timer_that_is_set_again_and_again_at_the_end_fails_the_run() -> None:
    def again(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> Any:
        nothing = pl.DataFrame(schema={"user": pl.String, "event_time": pl.Datetime("us", "UTC")})
        return nothing, state.with_columns(tick=pl.lit(after(60)))

    given = rows_of(stream([("a", 1)]).advance_watermark_to_infinity())
    out = given.group_by("user").process_batches(again, {"user": str}, timers={"tick": bl.EventTimer()})
    with pytest.raises(bl.errors.StepError, match="1,000 times over; EventTimer"):
        out.collect()


def test_timers_of_processing_time_fire_once_a_batch_and_at_the_end() -> None:
    def flush(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> Any:
        known = state.join(rows.group_by("user").len(), on="user", how="left")
        counted = known.with_columns(n=pl.col("n").fill_null(0) + pl.col("len").fill_null(0).cast(pl.Int64))
        out = due.join(counted, on="user").select("user", "n", "event_time")
        fired = pl.col("user").is_in(due["user"].to_list())
        later = pl.when(pl.col("len").is_not_null()).then(pl.lit(after(10))).otherwise("flush")
        return out, counted.select("user", pl.when(~fired).then("n").alias("n"), flush=later)

    given = stream([("a", 1), ("a", 2)]).advance_processing_time("10s").add_elements([{"user": "a", "at": 3}])
    out = (
        rows_of(given)
        .group_by("user")
        .process_batches(
            flush,
            {"user": str, "n": int},
            state={"n": int},
            timers={"flush": bl.ProcessingTimer()},
            order="arrival",
        )
    )
    assert out.collect()[["n"]].rows() == [(2,), (1,)]


def test_a_timer_of_processing_time_that_the_last_rows_set_fires_at_the_end() -> None:
    def buffer(
        rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        told = due.join(state, on="user").select("user", "n", "event_time")
        if rows.is_empty():
            return told, state.clear()
        new = rows.group_by("user").len("new")
        n = (pl.col("n").fill_null(0) + pl.col("new").fill_null(0)).alias("n")
        later = pl.lit(EPOCH + timedelta(days=40_000)).alias("flush")
        return told, state.join(new, on="user", how="left").select("user", n, later)

    given = stream(ROWS[:3], ROWS[3:]).advance_watermark_to_infinity()
    timers = {"flush": bl.ProcessingTimer()}
    for order in ("time", "arrival"):
        buffered = (
            rows_of(given)
            .group_by("user")
            .process_batches(buffer, {"user": str, "n": int}, state={"n": int}, timers=timers, order=order)
        )
        assert sorted(buffered.collect().select("user", "n").rows()) == [("a", 3), ("b", 2), ("c", 1)]


def test_a_function_that_cannot_be_called_so_is_refused() -> None:
    rows = rows_of(stream(ROWS)).group_by("user")
    with pytest.raises(bl.errors.PlanError, match=r"lambda\(rows, state, due\)"):
        rows.process_batches(lambda rows, state: (rows, state), {"user": str})
    with pytest.raises(bl.errors.PlanError, match="state field 'x'"):
        rows.process_batches(silence, {"user": str}, state={"x": pl.Object}, keep_forever=True)
