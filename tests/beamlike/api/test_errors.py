"""Mistakes of users: each error is raised by the wrong call, names the step and says what to do."""

from __future__ import annotations

import re

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import (
    DuplicateName,
    ReservedName,
    UnboundedGrouping,
    UnknownColumn,
    WrongType,
)
from tests.support.pipelines import Declared, plays

MINUTES = bl.FixedWindows("1m")


def windowed(name: str = "plays", pipeline: bl.Pipeline | None = None) -> bl.Collection:
    return plays(pipeline, name).window_into(MINUTES)


def read(source: object = None, **changes: object) -> bl.Collection:
    arguments = {"timestamp": "at", "watermark": bl.MonotonousTimestamps()} | changes
    return bl.Pipeline("p").read("plays", Declared() if source is None else source, **arguments)


def of_type(dtype: pl.DataType) -> Declared:
    return Declared(pl.Schema({"at": dtype}))


# (what is called, the kind of error, what its text says)
STEPS = {
    "filter: unknown column": (
        lambda: plays().filter(bl.col("socre") > 1),
        UnknownColumn,
        "step 'plays.filter': there is no column 'socre'; the columns are user, score, rate, at, tick, won; "
        "did you mean 'score'?",
    ),
    "select: unknown column in a sum": (
        lambda: plays().select(bl.col("user"), total=bl.col("score") + bl.col("rates")),
        UnknownColumn,
        "step 'plays.select': there is no column 'rates'",
    ),
    "filter: not boolean": (
        lambda: plays().filter(bl.col("score") + 1),
        WrongType,
        "step 'plays.filter': a filter must be Boolean, but score + 1 is Int64",
    ),
    "filter: nothing": (lambda: plays().filter(), bl.PlanError, "give it at least one column or expression"),
    "filter: a plain value": (
        lambda: plays().filter(True),
        WrongType,
        "expected a column name or an expression",
    ),
    "filter: a function among others": (
        lambda: plays().filter(lambda row: True, bl.col("won")),
        bl.PlanError,
        "step 'plays.filter': a function is the only condition of a filter",
    ),
    "select: a function": (
        lambda: plays().select(lambda row: True),
        WrongType,
        "for a Python function use map, flat_map or map_batches",
    ),
    "with_watermark: the other way round": (
        lambda: plays().with_watermark("at", bl.MonotonousTimestamps()),  # type: ignore[arg-type]
        WrongType,
        "the strategy is the first argument: with_watermark(MonotonousTimestamps(), timestamp='at')",
    ),
    "with_watermark: a column": (
        lambda: plays().with_watermark("at"),  # type: ignore[arg-type]
        WrongType,
        "must be a strategy such as bl.BoundedOutOfOrderness('5s'), not 'at'",
    ),
    "with_watermark: a duration": (
        lambda: plays().with_watermark("2 minutes"),  # type: ignore[arg-type]
        WrongType,
        "must be a strategy such as bl.BoundedOutOfOrderness('2 minutes'), not '2 minutes'",
    ),
    "with_timestamps: an expression": (
        lambda: plays().with_timestamps(bl.event_time()),  # type: ignore[arg-type]
        WrongType,
        "with_timestamps takes the name of a column; make one before, as in with_columns(time=...)",
    ),
    "write: no name": (
        lambda: plays().write(bl.Memory()),  # type: ignore[arg-type]
        WrongType,
        "write takes a name first, then the source or sink: write('plays', bl.Parquet('plays'))",
    ),
    "write: the other way round": (
        lambda: plays().write(bl.Memory(), "out"),  # type: ignore[arg-type]
        WrongType,
        "write takes a name first",
    ),
    "read: no name": (
        lambda: bl.Pipeline("p").read(bl.Rows([{"a": 1}])),  # type: ignore[arg-type]
        WrongType,
        "read takes a name first, then the source or sink: read('plays', bl.JSONLines('plays'))",
    ),
    "the start of a window as a column": (
        lambda: plays().with_columns(start=bl.col("window_start")),
        bl.errors.UnknownColumn,
        "bl.window_start() gives it, as in with_columns(window_start=bl.window_start())",
    ),
    "the time as a column": (
        lambda: plays().filter(bl.col("event_time") > 1),
        bl.errors.UnknownColumn,
        "bl.event_time() gives it",
    ),
    "the pane as a column": (
        lambda: plays().select("pane_timing"),
        bl.errors.UnknownColumn,
        "bl.pane_timing() gives it",
    ),
    "with_columns: wrong type": (
        lambda: plays().with_columns(double=bl.col("user") * 2),
        WrongType,
        "step 'plays.with_columns': cannot compute user * 2 as double: String and Int64 have no product",
    ),
    "with_columns: polars": (
        lambda: plays().with_columns(pl.col("score") * 2),
        WrongType,
        "this is a polars expression, write it with bl.col",
    ),
    "with_columns: text that is no column": (
        lambda: plays().with_columns(kind="mobile"),
        UnknownColumn,
        "for the text itself write bl.lit('mobile'), and for the name of a step .named(...)",
    ),
    "with_columns: other rows": (
        lambda: plays().with_columns(share=bl.col("score") / bl.col("score").sum()),
        bl.PlanError,
        "score / score.sum() as share: 'sum' reads other rows",
    ),
    "select: the same column twice": (
        lambda: plays().select("user", bl.col("score").alias("user")),
        DuplicateName,
        "step 'plays.select': gives column 'user' 2 times",
    ),
    "select: reserved name": (
        lambda: plays().select(__window_start=bl.col("score")),
        ReservedName,
        "column '__window_start': names that begin with two underscores are the engine's own",
    ),
    "select: window of a row in none": (
        lambda: plays().select(bl.window_start()),
        bl.PlanError,
        "bl.window_start(): its rows are in no window yet; call window_into(...) before",
    ),
    "filter: pane of a row in none": (
        lambda: windowed().filter(bl.pane_timing() == "late"),
        bl.PlanError,
        "step 'plays.filter': bl.pane_timing(): its rows are in no pane; only the output of",
    ),
    "map: no function": (lambda: plays().map("score"), WrongType, "expected a function, got 'score'"),
    "map: a schema that is none": (
        lambda: plays().map(dict, schema=["a"]),
        WrongType,
        "schema= must be a dict such as {\"user\": str}, a polars or Arrow schema, or a dataclass and such, not ['a']",
    ),
    "map: a type that is none": (
        lambda: plays().map(dict, schema={"a": "int"}),
        WrongType,
        "step 'plays.map': schema of column 'a': 'int' is text, not a type; did you mean int?",
    ),
    "map: a schema of nothing": (
        lambda: plays().map(dict, schema={}),
        bl.PlanError,
        "schema= has no columns",
    ),
    "map: reserved name": (lambda: plays().map(dict, schema={"__a": int}), ReservedName, "column '__a'"),
    "window_into: no windows": (
        lambda: plays().window_into("2m"),
        WrongType,
        "step 'plays.window_into': expected windows such as bl.FixedWindows('2m'), got '2m'",
    ),
    "window_into: no trigger": (
        lambda: plays().window_into(MINUTES, trigger=3),
        WrongType,
        "plays.window_into",
    ),
    "window_into: unsafe trigger": (
        lambda: plays().window_into(MINUTES, trigger=bl.AfterCount(3)),
        bl.PlanError,
        "step 'plays.window_into': the trigger AfterCount(3) may lose data",
    ),
    "window_into: lateness makes an inherited trigger unsafe": (
        lambda: (
            plays()
            .window_into(MINUTES, trigger=bl.AfterWatermark())
            .window_into(MINUTES, allowed_lateness="1h", name="again")
        ),
        bl.PlanError,
        "step 'again': the trigger",
    ),
    "window_into: unknown accumulation": (
        lambda: plays().window_into(MINUTES, accumulation="keeping"),
        bl.PlanError,
        "'keeping' is no Accumulation; it may be 'discarding', 'accumulating'",
    ),
    "window_into: negative lateness": (
        lambda: plays().window_into(MINUTES, allowed_lateness="-1s"),
        bl.PlanError,
        "step 'plays.window_into': allowed_lateness must not be negative",
    ),
    "window_into: lateness that is no duration": (
        lambda: plays().window_into(MINUTES, allowed_lateness="soon"),
        bl.PlanError,
        "step 'plays.window_into': not a duration: 'soon'",
    ),
    "group_by: unknown column": (
        lambda: windowed().group_by("usr"),
        UnknownColumn,
        "step 'plays.aggregate': there is no column 'usr'; the columns are user, score, rate, at, tick, won; "
        "did you mean 'user'?",
    ),
    "group_by: nothing": (lambda: windowed().group_by(), bl.PlanError, "group_by needs a key"),
    "group_by: an expression": (
        lambda: windowed().group_by(bl.col("user")),
        WrongType,
        "a key is the name of a column; compute it with with_columns(...) before",
    ),
    "group_by: the same key twice": (
        lambda: windowed().group_by("user", "user"),
        DuplicateName,
        "given twice",
    ),
    "group_by: a float": (
        lambda: windowed().group_by("rate", name="rates"),
        WrongType,
        "step 'rates': the key 'rate' is Float64; a key may be text",
    ),
    "aggregate: unknown column": (
        lambda: windowed().group_by("user").aggregate(mean=bl.mean("scor")),
        UnknownColumn,
        "step 'plays.aggregate': there is no column 'scor'",
    ),
    "aggregate: wrong type": (
        lambda: windowed().group_by("user", name="means").aggregate(mean=bl.mean("user")),
        WrongType,
        "step 'means': mean: mean('user') needs a column of numbers, but the column is String",
    ),
    **{
        f"aggregate: {name}": (
            lambda name=name: (
                windowed().group_by("user", name="ends").aggregate(n=bl.count(), **{name: bl.max("at")})
            ),
            ReservedName,
            f"step 'ends': an aggregate must not be named {name!r}, as sinks get a column of that name with every "
            f"pane; choose another, such as 'max_{name}'",
        )
        for name in (
            "window_start",
            "window_end",
            "event_time",
            "pane_timing",
            "pane_index",
            "pane_retracted",
        )
    },
    "aggregate: the name of a step": (
        lambda: windowed().aggregate(name="totals"),
        WrongType,
        "name must be an aggregate such as bl.count(), not 'totals'; a step is named with .named('totals')",
    ),
    "aggregate: text": (
        lambda: windowed().aggregate(average="meen"),
        WrongType,
        "average must be an aggregate such as bl.count(), not 'meen'; did you mean mean?",
    ),
    "aggregate: the function itself": (
        lambda: windowed().aggregate(n=bl.count),
        WrongType,
        "not the function itself; call it: bl.count(...)",
    ),
    "aggregate: an expression": (
        lambda: windowed().aggregate(n=bl.col("score").mean()),
        WrongType,
        "not an expression: compute columns with with_columns(...) before",
    ),
    "aggregate: without a name": (
        lambda: windowed().aggregate(bl.count()),
        bl.PlanError,
        "give every aggregate a name: aggregate(plays=bl.count())",
    ),
    "aggregate: nothing": (
        lambda: windowed().group_by("user").aggregate(),
        bl.PlanError,
        "at least one aggregate",
    ),
    "aggregate: the name of a key": (
        lambda: windowed().group_by("user").aggregate(user=bl.count()),
        DuplicateName,
        "the aggregate 'user' has the name of a key",
    ),
    "aggregate: reserved name": (lambda: windowed().aggregate(__n=bl.count()), ReservedName, "column '__n'"),
    "aggregate: unbounded in the global window": (
        lambda: plays(bounded=False).group_by("user").aggregate(n=bl.count()),
        UnboundedGrouping,
        "step 'plays.aggregate': the input has no end and it is in the global window",
    ),
    "aggregate: unbounded in part": (
        lambda: bl.flatten(plays(p := bl.Pipeline("p")), plays(p, "live", bounded=False)).aggregate(
            n=bl.count()
        ),
        UnboundedGrouping,
        "step 'flatten.aggregate'",
    ),
    "read: no source": (
        lambda: read("data/plays"),
        WrongType,
        "step 'plays': expected a source such as bl.Parquet('data/plays'), got 'data/plays'",
    ),
    "read: a class": (lambda: read(Declared), WrongType, "expected a source"),
    "read: a reserved column": (
        lambda: read(Declared(pl.Schema({"at": pl.Datetime(), "__window_end": pl.Int64()}))),
        ReservedName,
        "step 'plays': column '__window_end'",
    ),
    "read: unknown event time": (
        lambda: read(timestamp="att"),
        UnknownColumn,
        "step 'plays': there is no column 'att'; the columns are user, score, rate, at, tick, won; "
        "did you mean 'at'?; timestamp= names the column with the event time",
    ),
    "read: event time of floats without a unit": (
        lambda: read(of_type(pl.Float64())),
        WrongType,
        "step 'plays': .*'at' is Float64: give timestamp_unit='s'",
    ),
    "read: event time of booleans": (lambda: read(of_type(pl.Boolean())), WrongType, "'at' is Boolean"),
    "read: integers without a unit": (lambda: read(timestamp="tick"), WrongType, "'tick' is Int64.*unit"),
    "read: a unit with a timestamp": (
        lambda: read(timestamp_unit="ms"),
        WrongType,
        "step 'plays': .*'at' is Datetime.us, UTC.*unit='ms'",
    ),
    "read: an unknown unit": (
        lambda: read(timestamp="tick", timestamp_unit="sec"),
        bl.PlanError,
        "step 'plays': .*'sec' is no unit of time",
    ),
    "read: no watermark strategy": (
        lambda: read(watermark="5s"),
        WrongType,
        "step 'plays': watermark= must be a strategy such as bl.BoundedOutOfOrderness('5s'), not '5s'",
    ),
    "write: no sink": (lambda: plays().write("out", "out/plays"), WrongType, "step 'out': expected a sink"),
    "write: a class": (lambda: plays().write("out", bl.Memory), WrongType, "step 'out': expected a sink"),
    "dead letters in windows": (
        lambda: plays().dead_letters().window_into(MINUTES),
        bl.PlanError,
        "dead letters have no event time",
    ),
    "dead letters in groups": (
        lambda: plays().dead_letters().aggregate(n=bl.count()),
        bl.PlanError,
        "no event time",
    ),
    "dead letters: event time": (
        lambda: plays().dead_letters().select(bl.event_time()),
        bl.PlanError,
        "bl.event_time(): its rows have no event time; dead letters have none",
    ),
    "named: a source": (
        lambda: plays().named("x"),
        bl.PlanError,
        "step 'plays': the name of a source is given in",
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_the_call_at_fault_raises(case):
    call, kind, text = STEPS[case]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert text in message or re.search(text, message)
    assert isinstance(caught.value, bl.PlanError)
    assert "\n" not in message


def test_errors_are_also_what_python_would_raise():
    for builtin, call in (
        (KeyError, lambda: plays().select("nothing")),
        (TypeError, lambda: plays().filter("score")),
        (ValueError, lambda: plays().window_into(MINUTES, trigger=bl.AfterCount(1))),
    ):
        with pytest.raises(builtin):
            call()
