"""Routes: the rows of consumers, steps that run once, and columns that are never read."""

from __future__ import annotations

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import beamlike as bl
from beamlike.logical.node import Node
from beamlike.plan.route import Route, apply_routes
from beamlike.steps.base import NotRetracted, Step
from tests.support.pipelines import frame, plays
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_START


def chain(node: Node) -> tuple[Step, ...]:
    """Returns the steps between a source and a node."""
    steps: list[Step] = []
    while isinstance(node.origin, Step):
        steps.insert(0, node.origin)
        (node,) = node.inputs
    return tuple(steps)


def route(collection: bl.Collection, consumer: str, *columns: str) -> Route:
    return Route(consumer, chain(collection.node), columns or tuple(collection.node.shape.everything()))


def test_each_consumer_gets_its_columns_in_order():
    source = plays()
    routes = [route(source, "a", "score", EVENT_TIME), route(source.filter(bl.col("won")), "b", "user")]
    result = apply_routes(frame(0, 1, 2), routes).frames
    assert result["a"].columns == ["score", EVENT_TIME]
    assert result["b"].to_dict(as_series=False) == {"user": ["user 1", "user 2"]}


def test_routes_to_one_consumer_are_put_together_in_their_order():
    source = plays()
    routes = [
        route(source.filter(bl.col("score") > 1), "out", "score"),
        route(source.filter(bl.col("score") < 3), "out", "score"),
    ]
    assert apply_routes(frame(1, 2, 3), routes).frames["out"]["score"].to_list() == [2, 3, 1, 2]


def test_a_shared_python_step_runs_once_and_what_is_before_it_too():
    calls = {"first": 0, "second": 0}

    def count(name: str):
        def fn(table):
            calls[name] += 1
            return table

        return fn

    mapped = plays().map_batches(count("first"))
    left, right = mapped.map_batches(count("second")), mapped.filter(bl.col("won"))
    calls.update(first=0, second=0)
    result = apply_routes(
        frame(0, 1), [route(left, "left"), route(right, "right"), route(mapped, "all")]
    ).frames
    assert {name: len(part) for name, part in result.items()} == {"left": 2, "right": 1, "all": 2}
    assert calls == {"first": 1, "second": 1}


def test_steps_after_a_flatten_run_on_each_way():
    source = plays()
    both = bl.flatten(source.filter(bl.col("score") > 1), source.filter(bl.col("score") < 1))
    doubled = both.with_columns(score=bl.col("score") * 2)
    steps = [(*chain(side), doubled.node.origin) for side in both.node.inputs]
    result = apply_routes(frame(0, 1, 2), [Route("out", way, ("score",)) for way in steps]).frames
    assert result["out"]["score"].to_list() == [4, 0]


def test_a_scanned_file_is_read_only_where_some_route_needs_it(tmp_path):
    frame(*range(100)).write_parquet(tmp_path / "rows.parquet")
    read: list[tuple[list[str] | None, object]] = []

    def reader(with_columns, predicate, n_rows, batch_size):
        read.append((with_columns, predicate))
        part = pl.read_parquet(tmp_path / "rows.parquet", columns=with_columns)
        yield part if predicate is None else part.filter(predicate)

    schema = pl.read_parquet_schema(tmp_path / "rows.parquet")
    lazy = pl.io.plugins.register_io_source(reader, schema=schema)
    wanted = plays().with_columns(double=bl.col("rate") * 2).filter(bl.col("score") > 97)
    result = apply_routes(lazy, [route(wanted, "out", "user", "score")]).frames
    assert result["out"]["score"].to_list() == [98, 99]
    ((columns, predicate),) = read
    assert set(columns) == {"user", "score"}
    assert predicate is not None


def test_several_routes_scan_a_file_once(tmp_path):
    frame(*range(10)).write_parquet(tmp_path / "rows.parquet")
    scans = []

    def reader(with_columns, predicate, n_rows, batch_size):
        scans.append(with_columns)
        part = pl.read_parquet(tmp_path / "rows.parquet", columns=with_columns)
        yield part if predicate is None else part.filter(predicate)

    schema = pl.read_parquet_schema(tmp_path / "rows.parquet")
    lazy = pl.io.plugins.register_io_source(reader, schema=schema, is_pure=True)
    won = plays().filter(bl.col("won"))
    apply_routes(lazy, [route(won, "a", "user"), route(won.select("score"), "b", "score")])
    assert [set(columns) for columns in scans] == [{"user", "score", "won"}]


def test_dead_letters_take_only_their_own_routes():
    p = bl.Pipeline("p")
    source = plays(p)
    lost = Route("lost", chain(source.dead_letters().select("error").node), ("error",), "dead_letters")
    main = route(source, "main", "user")
    letters = pl.DataFrame({"step": ["plays"], "error": ["null"], "row": ["{}"]})
    assert list(apply_routes(letters, [lost, main], output="dead_letters").frames) == ["lost"]
    assert list(apply_routes(frame(1), [lost, main]).frames) == ["main"]


def test_no_rows_give_empty_frames_of_the_right_columns():
    source = plays().map(lambda row: {"n": 1}, schema={"n": int})
    result = apply_routes(frame(), [route(source, "out")]).frames["out"]
    assert result.schema == pl.Schema({"n": pl.Int64(), EVENT_TIME: pl.Int64()})


class Scores(bl.CustomWindows):
    """Windows whose number is the score."""

    columns = ("score",)

    def assign_windows(self, time, row):
        return [(time, time + length) for length in range(1, row["score"] + 1)]


def rewritten(source: bl.Collection) -> dict[str, bl.Collection]:
    """Returns a chain of each kind of step, and of several kinds."""
    sliding = source.window_into(bl.SlidingWindows("6s", "2s"))
    own = source.window_into(Scores())
    return {
        "filter": source.filter(bl.col("score") % 2 == 0),
        "select": source.select("user", twice=bl.col("score") * 2),
        "with_columns": source.with_columns(bl.col("score") + bl.col("rate"), rate=bl.lit(1.5)),
        "map": source.map(lambda row: {"score": row["score"] + 1}, schema={"score": int}),
        "flat_map": source.flat_map(lambda row: [row] * (row["score"] % 3)),
        "map_batches": source.map_batches(lambda table: table.select(["user", "won"])),
        "windows": sliding,
        "custom windows": own,
        "late custom windows": own.select("user", end=bl.window_end()),
        "late windows": sliding.select("user", start=bl.window_start()).filter(
            bl.col("start") > bl.event_time()
        ),
        "mixed": sliding.filter(bl.col("won")).map(lambda row: row).select("score", w=bl.window_end()),
        "shadowed": source.with_columns(score=bl.col("tick")).select(x=bl.col("score")),
    }


ROUTES = {kind: route(collection, "out") for kind, collection in rewritten(plays()).items()}
ROUTES["not retracted"] = Route("out", (NotRetracted("flatten"),), ("user", PANE_RETRACTED))
scores = st.lists(st.integers(-5, 20), max_size=12)


@pytest.mark.parametrize("kind", sorted(ROUTES))
@given(scores=scores, cut=st.integers(0, 12))
def test_a_step_does_not_show_how_its_input_was_cut(kind, scores, cut):
    whole = frame(*scores)
    parts = [apply_routes(part, [ROUTES[kind]]).frames["out"] for part in (whole[:cut], whole[cut:])]
    assert_frame_equal(pl.concat(parts), apply_routes(whole, [ROUTES[kind]]).frames["out"])


@pytest.mark.parametrize("kind", sorted(ROUTES))
def test_a_route_needs_no_more_columns_than_it_says(kind):
    whole = frame(*range(10))
    for columns in (ROUTES[kind].columns, ROUTES[kind].columns[:1], (EVENT_TIME,)):
        way = attrs.evolve(ROUTES[kind], columns=columns)
        kept = [column for column in whole.columns if column in way.needed]
        assert_frame_equal(
            apply_routes(whole.select(kept), [way]).frames["out"], apply_routes(whole, [way]).frames["out"]
        )


def test_routes_that_share_a_step_get_what_each_needs_of_it():
    wide = plays().with_columns(a=bl.col("score") + 1, b=bl.col("rate") + 1, c=bl.col("tick") + 1)
    left, right = route(wide, "left", "a"), route(wide, "right", "b", "user")
    assert left.needed == {"score"}
    assert right.needed == {"rate", "user"}
    result = apply_routes(frame(1).select("score", "rate", "user"), [left, right]).frames
    assert result["left"].rows() == [(2,)]
    assert result["right"].rows() == [(1.5, "user 1")]


def test_windows_are_replaced_by_new_ones():
    twice = plays().window_into(bl.FixedWindows("1s")).window_into(bl.FixedWindows("5s"))
    result = apply_routes(frame(*range(7)), [route(twice, "out", WINDOW_START)]).frames["out"]
    assert result[WINDOW_START].to_list() == [0] * 5 + [5_000_000] * 2
