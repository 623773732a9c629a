"""Lookups in sides that are read before the first batch: the matches, plans without a stage, and their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.observe.charts.plot import nodes
from beamlike.plan.run_graph import describe_run
from tests.support.examples import share
from tests.support.shards import Query

KEYS = st.none() | st.sampled_from(["a", "b", "c"])
SIDES = st.lists(st.tuples(KEYS, st.integers(0, 3), st.none() | st.integers(0, 9)), max_size=8)
NOTHING: dict[str, Any] = {"key": str, "at": int, "n": int}


def read(p: bl.Pipeline, name: str, source: Any) -> bl.Collection:
    watermark = bl.BoundedOutOfOrderness("1h")
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=watermark)


def rows_of(side: list[tuple[str | None, int, int | None]], timed: bool) -> bl.Rows:
    """Returns the side's rows with an event time, or without one, so that a later row is the newer one."""
    schema = NOTHING if timed else {"key": str, "n": int}
    rows = [{"key": key, "at": at, "n": n} if timed else {"key": key, "n": n} for key, at, n in side]
    return bl.Rows(rows, schema=schema, rows_per_batch=2)


@given(st.lists(KEYS, max_size=8), SIDES, st.booleans(), st.integers(1, 3))
def test_rows_find_the_newest_row_of_their_key(
    keys: list[str | None], side: list[tuple[str | None, int, int | None]], timed: bool, rows: int
) -> None:
    p = bl.Pipeline("p")
    given_ = [{"key": key, "at": 1, "n": 0} for key in keys]
    main = read(p, "main", bl.Rows(given_, schema=NOTHING, rows_per_batch=rows))
    rates = read(p, "side", rows_of(side, True)) if timed else p.read("side", rows_of(side, False))
    row = bl.lookup(rates.filter(bl.col("n") < 8), on="key", default={"n": -1})
    main.select("key", n=row["n"], found=row.found()).write("out", out := bl.Memory())
    assert not p.plan().stages
    p.run()
    newest = sorted(side, key=lambda one: one[1]) if timed else side
    known = {key: n for key, _, n in newest if key is not None and n is not None and n < 8}
    expected = [(key, known.get(key, -1), key in known) for key in keys]
    assert out.frame().select("key", "n", "found").rows() == expected


def rated(folder: Path, out: bl.Memory | bl.Parquet, rate: type = float) -> bl.Pipeline:
    """Declares orders with their rates, and the number of orders of each rate, which looks up the rate again."""
    p = bl.Pipeline("rated")
    orders = read(p, "orders", bl.CSV(folder / "orders", {"currency": str, "at": int}, 1))
    rates = p.read("rates", bl.CSV(folder / "rates", {"currency": str, "rate": rate}))
    row = bl.lookup(rates, on="currency")
    counts = orders.filter(row.found()).group_by("currency", name="counts").aggregate(n=bl.count())
    counts.with_columns(rate=row["rate"]).write("out", out)
    return p


def write(folder: Path, name: str, *lines: str) -> None:
    file = folder / f"{name}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "rates/1", "currency,rate", "EUR,1.5", "USD,1.0")
    write(tmp_path, "orders/1", "currency,at", "EUR,1", "CHF,2")
    return tmp_path


def go_on(folder: Path) -> None:
    """Adds orders, and other rates, which the run that has begun does not read."""
    write(folder, "orders/2", "currency,at", "USD,3", "EUR,4", "GBP,5")
    write(folder, "rates/1", "currency,rate", "EUR,9.0", "USD,9.0", "GBP,9.0")


FOUND = [("EUR", 2, 1.5), ("USD", 1, 1.0)]


def found(folder: Path) -> list[Any]:
    return sorted(pl.read_parquet(f"{folder}/out/*.parquet").select("currency", "n", "rate").rows())


def local(folder: Path, checkpoint: str = "checkpoint", **options: Any) -> None:
    runner = bl.LocalRunner(checkpoint=str(folder / checkpoint), **options)
    rated(folder, bl.Parquet(folder / "out")).run(runner)


def on_spark(folder: Path, spark: Any, checkpoint: str = "checkpoint", **options: Any) -> None:
    runner = bl.SparkRunner(str(folder / checkpoint), session=spark, shards=2, **options)
    rated(folder, bl.Parquet(folder / "out")).run(runner)


def test_a_run_that_goes_on_sees_the_side_as_it_was(folder: Path) -> None:
    local(folder)
    go_on(folder)
    local(folder, drain=True)
    assert found(folder) == FOUND


@pytest.mark.slow
@pytest.mark.spark
def test_so_does_one_on_spark(spark: Any, folder: Path) -> None:
    on_spark(folder, spark)
    go_on(folder)
    on_spark(folder, spark, drain=True)
    assert found(folder) == FOUND


def test_the_side_goes_along_with_a_savepoint(folder: Path) -> None:
    local(folder)
    go_on(folder)
    bl.savepoint.save(str(folder / "checkpoint"), str(folder / "saved"))
    plan = rated(folder, bl.Parquet(folder / "out")).plan()
    assert bl.savepoint.restore(str(folder / "saved"), str(folder / "next"), plan, runner="local") == []
    local(folder, "next", drain=True)
    assert found(folder) == FOUND


def test_a_side_that_was_gone_for_a_while_is_read_again(folder: Path) -> None:
    local(folder)
    go_on(folder)
    alone = bl.Pipeline("rated")
    orders = read(alone, "orders", bl.CSV(folder / "orders", {"currency": str, "at": int}, 1))
    orders.group_by("currency", name="counts").aggregate(n=bl.count()).write(
        "out", bl.Parquet(folder / "alone")
    )
    told = restored(folder, "checkpoint", "without", alone.plan())
    assert told == ["source 'rates' is gone: its part of the savepoint is left out"]
    assert restored(folder, "without", "next", rated(folder, bl.Parquet(folder / "out")).plan()) == []
    local(folder, "next", drain=True)
    assert found(folder) == [("EUR", 2, 9.0), ("GBP", 1, 9.0), ("USD", 1, 9.0)]


def restored(folder: Path, before: str, after: str, plan: bl.Plan) -> list[str]:
    """Saves one checkpoint, restores it as another one, and returns the messages of the restore."""
    saved = str(folder / f"of-{before}")
    bl.savepoint.save(str(folder / before), saved)
    return bl.savepoint.restore(saved, str(folder / after), plan, runner="local")


@pytest.mark.slow
@pytest.mark.spark
def test_to_spark_and_back_too(spark: Any, folder: Path) -> None:
    local(folder)
    go_on(folder)
    plan = rated(folder, bl.Parquet(folder / "out")).plan()
    moves: list[dict[str, Any]] = [{"shards": 2, "session": spark}, {"runner": "local"}]
    for number, to in enumerate(moves):
        before, after = ("checkpoint", "spark", "local")[number : number + 2]
        saved = str(folder / f"saved-{number}")
        bl.savepoint.save(str(folder / before), saved, session=spark if number else None)
        assert bl.savepoint.restore(saved, str(folder / after), plan, **to) == []
        if not number:
            on_spark(folder, spark, after)
    local(folder, "local", drain=True)
    assert found(folder) == FOUND


def test_a_side_that_has_other_columns_now_is_told_of(folder: Path) -> None:
    local(folder)
    other = rated(folder, bl.Parquet(folder / "out"), str)
    told = r"side 'rates': columns was currency String, rate Float64, now currency String, rate String"
    with pytest.raises(CheckpointError, match=told):
        other.run(bl.LocalRunner(checkpoint=str(folder / "checkpoint")))
    bl.savepoint.save(str(folder / "checkpoint"), str(folder / "saved"))
    with pytest.raises(CheckpointError, match=told):
        bl.savepoint.restore(str(folder / "saved"), str(folder / "next"), other.plan(), runner="local")


def test_a_table_that_is_damaged_is_told_of(folder: Path) -> None:
    local(folder)
    (table,) = (folder / "checkpoint").rglob("*.arrow")
    table.write_bytes(b"no table")
    with pytest.raises(
        CheckpointError, match=r"checkpoint is damaged: .*rates\.arrow is not what was written"
    ):
        local(folder)
    table.unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint is damaged: .*rates\.arrow is missing"):
        local(folder)


def test_what_a_side_has_is_counted_also_where_no_column_is_needed() -> None:
    p = bl.Pipeline("p")
    main = read(p, "main", bl.Rows([{"key": "a", "at": 1, "n": 1}]))
    side = p.read("side", bl.Rows([{"key": "a"}, {"key": "b"}, {"key": "c"}]))
    main.filter(bl.lookup(side, on="key").found()).write("out", bl.Memory())
    record = p.run().batches[0]
    assert (record.sources["side"].read, record.sources["side"].elements) == (3, 3)


def test_a_picture_shows_where_rows_are_looked_up() -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"key": "a", "at": 1, "n": 1}])
    main, side = read(p, "main", rows), read(p, "side", rows)
    found = main.with_columns(m=bl.lookup(side, on="key")["n"])
    found.write("out", bl.Memory())
    found.group_by("m").aggregate(n=bl.count()).named("counts").write("counted", bl.Memory())
    described = describe_run(p.plan())
    assert described.sinks["out"].tables == described.stages["counts"].tables == ("side",)
    assert described.sinks["counted"].tables == ()
    inputs = {node.name: node.inputs for node in nodes(described)}
    assert inputs["out"] == inputs["counts"] == ("main", "side")


def test_rows_of_a_side_that_cannot_be_used_are_dead_letters_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "side/1", "key,n", "a,1", "b,many")
    p = bl.Pipeline("p")
    main = read(p, "main", bl.Rows([{"key": key, "at": 1, "n": 1} for key in "ab"]))
    side = p.read("side", bl.CSV(tmp_path / "side", {"key": str, "n": int}))
    main.select("key", other=bl.lookup(side, on="key")["n"]).write("out", out := bl.Memory())
    run = p.run()
    assert out.frame().select("key", "other").rows() == [("a", 1), ("b", None)]
    assert [batch.sources["side"].dead_letters for batch in run.batches] == [1, 0]


def in_windows(main: bl.Collection, side: bl.Collection) -> bl.Collection:
    return main.window_into(bl.FixedWindows("1m")).with_columns(m=bl.lookup(side, on="key")["n"])


def with_the_late(main: bl.Collection, side: bl.Collection) -> bl.Collection:
    step = main.with_columns(m=bl.lookup(side, on="key")["n"])
    step.late().write("late", bl.Memory())
    return step


def of_a_side_that_is_written(main: bl.Collection, side: bl.Collection) -> bl.Collection:
    side.write("side out", bl.Memory())
    return main.with_columns(m=bl.lookup(side, on="key")["n"])


def of_counts(main: bl.Collection, side: bl.Collection) -> bl.Collection:
    counts = side.group_by("key").aggregate(n=bl.count())
    return main.with_columns(m=bl.lookup(counts, on="key")["n"])


@pytest.mark.parametrize("how", [in_windows, with_the_late, of_a_side_that_is_written, of_counts])
def test_other_lookups_have_a_stage_and_find_the_same(how: Any) -> None:
    p = bl.Pipeline("p")
    rows = [{"key": "a", "at": 1, "n": 1}]
    step = how(read(p, "main", bl.Rows(rows)), read(p, "side", bl.Rows(rows)))
    step.write("out", out := bl.Memory())
    assert any(name.endswith(".lookup") for name in p.plan().stages)
    p.run()
    assert out.frame()["m"].to_list() == [1]


@share(2)
@given(st.lists(KEYS, min_size=1, max_size=8), SIDES)
def test_a_stage_and_a_table_find_the_same(keys: list[str | None], side: list[Any]) -> None:
    answers = []
    for windows in (bl.GlobalWindows(), bl.FixedWindows("1h")):
        p = bl.Pipeline("p")
        main = read(p, "main", bl.Rows([{"key": key, "at": 1, "n": 0} for key in keys], schema=NOTHING))
        row = bl.lookup(read(p, "side", rows_of(side, True)), on="key")
        step = main.window_into(windows).filter(row.found()).with_columns(m=row["n"])
        step.write("out", out := bl.Memory())
        p.run()
        answers.append(out.frame().select("key", "m").rows())
    assert answers[0] == answers[1]


class Changing:
    """An external table: each reading has another number."""

    bounded = True

    def __init__(self) -> None:
        self.readings = 0

    def schema(self) -> dict[str, Any]:
        return bl.Rows([], schema={"key": str, "n": int}).schema()

    def chunks(self, rows: int) -> Any:
        self.readings += 1
        yield pl.LazyFrame({"key": ["a"], "n": [self.readings]})


def test_all_tables_of_a_source_are_of_one_reading() -> None:
    p = bl.Pipeline("p")
    side, main = p.read("side", Changing()), read(p, "main", bl.Rows([{"key": "a", "at": 1, "n": 1}]))
    whole, part = bl.lookup(side, on="key"), bl.lookup(side.filter(bl.col("n") > 0), on="key")
    assert main.select(one=whole["n"], other=part["n"]).collect()[["one", "other"]].rows() == [(1, 1)]


def test_a_table_that_becomes_the_side_of_a_stage_is_refused(folder: Path) -> None:
    local(folder)
    p = bl.Pipeline("rated")
    orders = read(p, "orders", bl.CSV(folder / "orders", {"currency": str, "at": int}, 1))
    rates = p.read("rates", bl.CSV(folder / "rates", {"currency": str, "rate": float}))
    orders.window_into(bl.FixedWindows("1m")).with_columns(
        rate=bl.lookup(rates, on="currency")["rate"]
    ).write("out", bl.Parquet(folder / "out"))
    bl.savepoint.save(str(folder / "checkpoint"), str(folder / "saved"))
    with pytest.raises(
        CheckpointError, match=r"keeps side 'rates', which was a table, and 'rates' is not read"
    ):
        bl.savepoint.restore(str(folder / "saved"), str(folder / "next"), p.plan(), runner="local")


def test_a_glob_that_matches_nothing_yet_has_no_rows_where_a_run_goes_on(folder: Path) -> None:
    p = bl.Pipeline("p")
    orders = read(p, "orders", bl.CSV(folder / "orders", {"currency": str, "at": int}, 1))
    rates = p.read("rates", bl.CSV(folder / "rates/none-*.csv", {"currency": str, "rate": float}))
    orders.select("currency", rate=bl.lookup(rates, on="currency")["rate"]).write("out", out := bl.Memory())
    checkpoint = str(folder / "checkpoint")
    with pytest.raises(bl.errors.MissingFiles, match="none-"):
        p.run(bl.LocalRunner(checkpoint=checkpoint))
    runner = bl.LocalRunner(
        checkpoint=checkpoint, trigger="1 second", on_batch=lambda record: run.ask_to_stop()
    )
    run = runner.start(p.plan())
    run.wait()
    assert out.frame().select("currency", "rate").rows() == [("EUR", None), ("CHF", None)]


def test_rows_that_look_at_several_where_there_should_be_one_are_lost_whoever_wants_what_they_see() -> None:
    p = bl.Pipeline("p", max_dead_letters=9)
    main = read(p, "main", bl.Rows([{"key": "a", "at": 1, "n": 1}]))
    one = bl.as_singleton(p.read("side", bl.Rows([{"m": 1}, {"m": 2}])))
    assert main.with_columns(m=one["m"]).select("key").collect().is_empty()


def test_keys_need_not_be_wanted_to_be_looked_up() -> None:
    p = bl.Pipeline("p")
    side, main = (read(p, name, bl.Rows([{"key": "a", "at": 1, "n": 7}])) for name in ("side", "main"))
    main.select(found=bl.lookup(side, on="key")["n"]).write("out", out := bl.Memory())
    p.run()
    assert out.frame()["found"].to_list() == [7]


@share(2)
@given(SIDES.filter(bool))
def test_shards_find_what_a_run_in_process_finds(side: list[Any]) -> None:
    p = bl.Pipeline("p")
    main = read(p, "main", bl.Rows([{"key": key, "at": 1, "n": 0} for key in "abc"]))
    counts = main.group_by("key").aggregate(n=bl.count())
    counts.select("key", m=bl.lookup(read(p, "side", rows_of(side, True)), on="key")["n"]).write(
        "out", out := bl.Memory()
    )
    frames = [frame for batch in Query(p.plan(), 2).batches() for frame in batch.frames("out")]
    p.run()
    assert sorted(row for frame in frames for row in frame.select("key", "m").rows()) == sorted(
        out.frame().select("key", "m").rows()
    )
