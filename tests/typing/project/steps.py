"""Steps of a collection: of columns, of rows, of times, joins and side inputs."""

# pyright: strict

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, assert_type

import polars as pl

import beamlike as bl
from tests.typing.project.sources import scores

Row = dict[str, Any]


def columns(p: bl.Pipeline) -> bl.Collection:
    read = scores(p)
    chosen = read.select("user", bl.col("points"), at=bl.event_time()).with_columns(
        big=bl.when(bl.col("points") > 3).then(bl.lit("yes")).otherwise(bl.lit("no")),
        digits=bl.regexp_extract("user", r"(\d+)", group=1),
    )
    read.explode("tags", number="place").cast({"points": float}).drop("at").rename({"user": "player"})
    read.select(both=pl.Series([1]).sum()).named("numbers")
    return assert_type(chosen, bl.Collection)


def shout(row: Row) -> Row:
    return {"user": row["user"].upper()}


def letters(row: Row) -> Iterator[Row]:
    yield from ({"letter": letter} for letter in row["user"])


def with_limit(row: Row, limit: Row, names: list[Row], ages: Mapping[str, Any]) -> Row:
    return {"user": row["user"], "over": row["points"] > limit["least"], "age": ages.get(row["user"])}


def is_good(row: Row) -> bool:
    return bool(row["points"] > 3)


async def ask(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(points=pl.col("points") * 2)


def rows(p: bl.Pipeline) -> None:
    read = scores(p)
    read.map(shout, {"user": str}).filter(bl.col("user") == "ADA", ~bl.col("user").is_null())
    read.flat_map(letters, schema={"letter": str}, name="letters")
    read.filter(is_good).dead_letters(name="bad")
    read.map_batches(lambda frame: frame.select("user"))
    read.map_batches(ask, read.schema, calls=bl.Calls(rows=10, at_once=2, timeout="5s", retries=1))
    limits = p.read("limits", bl.Rows([{"least": 3}]))
    ages = p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
    sides: dict[str, bl.SideInput] = {
        "limit": bl.as_singleton(limits, default={"least": 0}),
        "names": bl.as_list(ages),
        "ages": bl.as_dict(ages, "user", "age", max_bytes=1 << 20),
    }
    read.map(with_limit, {"user": str, "over": bool, "age": int}, side=sides)
    read.filter(bl.col("points") > bl.as_singleton(limits)["least"])
    table: bl.LookupTable = bl.lookup(ages, on="user", default={"age": 0})
    read.with_columns(age=table["age"], known=table.found(), same=table.age)


def times(p: bl.Pipeline) -> None:
    read = p.read("lines", bl.Rows([{"user": "ada", "at": 3}]))
    timed = read.with_watermark(bl.MonotonousTimestamps(), "at", timestamp_unit="s")
    timed.with_timestamps("at", timestamp_unit="s", allowed_skew=timedelta(seconds=1))
    timed.dedup("user", within="1h", by="processing").distinct(name="once")
    days = timed.window_into(bl.FixedWindows("1d"))
    days.latest("user").join(days.latest("user", name="other"), "user", how="left", suffix="_other")
    timed.join(timed, "user", "inner", within=("0s", "5m"), event_time="left")
    timed.join_asof(timed, on="user", tolerance="1h")


def logs(p: bl.Pipeline) -> None:
    log = p.read("log", bl.JSONLines("log", {"op": str, "before": {"user": str}, "after": {"user": str}}))
    bl.changes(log, op="op", before="before", after="after").group_by("user").aggregate(n=bl.count())


def together(p: bl.Pipeline) -> None:
    days = scores(p).window_into(bl.FixedWindows("1d"))
    assert_type(bl.flatten(days, days, fill_missing=True), bl.Collection)
    assert_type(bl.cogroup(ours=days, theirs=days).by("user"), bl.Collection)
    struct = days.aggregate(best=bl.arg_max(["user", "points"], by="points")).unnest("best")
    assert_type(struct.pipeline, bl.Pipeline)
    assert_type(struct.schema, pl.Schema)
    assert_type(struct.name, str)
