"""A user-defined operator: explained, saved, run, resumed, under `why`, drawn, and refused where it cannot run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.io import Source
from beamlike.operators import (
    EVENT_TIME,
    MAIN,
    AppendTable,
    Input,
    State,
    StateTable,
    StepClock,
    StepOutput,
    Table,
)
from beamlike.plan.manifest import describe
from beamlike.plan.run_graph import describe_run
from beamlike.records.model import BatchRecord
from tests.support.pipelines import plays
from tests.support.release import Held, Release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"user": str, "at": int, "until": int}


def row(user: str, at: int, until: int) -> dict[str, Any]:
    return {"user": user, "at": at, "until": until}


STREAM = (
    bl.TestStream(COLUMNS)
    .add_elements([row("a", 1, 10), row("b", 2, 20), row("c", 3, 40)])
    .advance_watermark_to(9)
    .advance_watermark_to(10)
    .advance_watermark_to(39)
)


def released(source: Source, sink: bl.Memory, operator: bl.CustomOperator | None = None) -> bl.Pipeline:
    """Declares rows that are released at their time."""
    p = bl.Pipeline("releases")
    watermark = None if isinstance(source, bl.TestStream) else bl.BoundedOutOfOrderness("3s")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    rows.apply(operator or Release("user", "until"), name="released").write("out", sink)
    return p


def test_the_plan_says_what_it_is() -> None:
    lines = released(STREAM, bl.Memory()).explain().splitlines()
    (at,) = [number for number, line in enumerate(lines) if "released  <- rows" in line]
    assert [line.strip("│├└─ ") for line in lines[at : at + 4]] == [
        "released  <- rows",
        'operator    Release("user", until="until")',
        "gives       rows: user String, at Int64, until Int64",
        "-> out  ships user, at, until, event time",
    ]


def test_a_manifest_has_all_that_it_was_made_with() -> None:
    stage = describe(released(STREAM, bl.Memory()).plan(), 1)["stages"]["released"]
    assert (stage["kind"], stage["keys"]) == ("Release", {"user": "String"})
    rows = {"user": "String", "at": "Int64", "until": "Int64"}
    assert stage["choices"] == {"key": "user", "until": "until", "rows": rows}


def test_the_graph_and_a_notebook_show_it() -> None:
    p = released(STREAM, bl.Memory())
    stage = describe_run(p.plan()).stages["released"]
    assert (stage.what, stage.keys, stage.row) == ('Release("user", until="until")', ("user",), "row")
    assert 'Release("user", until="until")' in p.plot().svg()


@pytest.mark.parametrize(
    "name", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_both_runners_release_each_row_in_the_batch_of_its_time(
    name: str, request: pytest.FixtureRequest
) -> None:
    sink = bl.Memory()
    local = name == "local"
    runner = bl.LocalRunner() if local else bl.SparkRunner(shards=2, session=request.getfixturevalue("spark"))
    batches = runner.run(released(STREAM, sink).plan()).batches
    assert [batch.stages["released"].emitted for batch in batches] == [0, 0, 1, 1, 1]
    assert sorted(row["user"] for row in sink.rows()) == ["a", "b", "c"]


def test_why_says_what_a_row_waits_for(tmp_path: Path) -> None:
    told: list[str] = []

    def ask(record: BatchRecord) -> None:
        if record.batch == 1:
            result = CliRunner().invoke(main, ["why", str(tmp_path / "records.jsonl"), "--stage", "released"])
            told.extend(result.output.splitlines())

    runner = bl.LocalRunner(records=tmp_path / "records.jsonl", on_batch=ask)
    released(STREAM, bl.Memory()).run(runner)
    assert any("the row of key a in" in line and "waits for its release" in line for line in told)
    assert any("reach 1970-01-01T00:00:10Z, which is at 1970-01-01T00:00:09Z" in line for line in told)


def write(folder: Path, first: int, last: int) -> bl.JSONLines:
    """Writes rows of ten users, ten seconds a file, which are released after up to half a minute."""
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        at = [10 * number + user for user in range(10)]
        rows = [row(f"u{user}", time, time + 7 * user % 30) for user, time in enumerate(at)]
        file = folder / f"{number}.jsonl"
        pl.DataFrame(rows).write_ndjson(file)
        os.utime(file, (1_000_000_000 + number,) * 2)
    return bl.JSONLines(folder, schema=COLUMNS, max_files_per_trigger=1)


def outputs(sink: bl.Memory) -> list[tuple[Any, ...]]:
    return sorted(sink.frame().select("user", "at", "until").rows())


@pytest.mark.parametrize(
    "name", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_a_run_goes_on_from_its_checkpoint(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def runner(**options: Any) -> Any:
        if name == "local":
            return bl.LocalRunner(checkpoint=tmp_path / "checkpoint", **options)
        session: SparkSession = request.getfixturevalue("spark")
        return bl.SparkRunner(str(tmp_path / "checkpoint"), session=session, shards=2, **options)

    before, after, undisturbed = bl.Memory(), bl.Memory(), bl.Memory()
    files = write(tmp_path / "rows", 0, 3)
    stopped = runner().run(released(files, before).plan())
    assert stopped.batches[-1].stages["released"].live > 0
    write(tmp_path / "rows", 3, 6)
    runner(drain=True).run(released(files, after).plan())
    released(files, undisturbed).run()
    assert len(outputs(undisturbed)) == 60
    assert sorted([*outputs(before), *outputs(after)]) == outputs(undisturbed)


@attrs.frozen
class ReleaseLater(Release):
    """A second class of the same operator."""


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        (Release("user", "at"), "stage 'released': until was until, now at"),
        (ReleaseLater("user", "until"), "stage 'released': kind was Release, now ReleaseLater"),
    ],
)
def test_state_of_another_operator_is_refused(operator: bl.CustomOperator, told: str, tmp_path: Path) -> None:
    files = write(tmp_path / "rows", 0, 1)
    released(files, bl.Memory()).run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))
    with pytest.raises(bl.CheckpointError, match=told):
        released(files, bl.Memory(), operator).run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))


@attrs.frozen
class Blocked(StateTable[AppendTable]):
    """The table of keys whose rows are not released."""

    key: str
    schema: pl.Schema
    clocks = ("watermark",)

    @property
    def table(self) -> AppendTable:
        bounds = (EVENT_TIME, EVENT_TIME)
        return AppendTable(
            row="key", waits="", keys=(self.key,), bounds=bounds, schema=self.schema, name="blocked"
        )

    def deadlines(self, times: Any) -> Mapping[str, pl.Expr]:
        return {"watermark": pl.lit(None, pl.Int64)}


@attrs.frozen
class ReleaseUnlessBlocked(Release):
    """Drops rows of keys that the input "blocked" has had, instead of releasing them."""

    @property
    def inputs(self) -> Mapping[str, Input]:
        keys = pl.Schema({self.key: self.rows[self.key], EVENT_TIME: pl.Int64()})
        return {**super().inputs, "blocked": Input((self.key,), keys)}

    @property
    def blocked(self) -> Blocked:
        columns = self.inputs["blocked"].schema
        return Blocked(self.key, pl.Schema({**columns, "__pending": pl.Int64(), "__hold": pl.Int64()}))

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.held, self.blocked)

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        given = super().step(state, arrivals, clock)
        nothing = [pl.lit(0, pl.Int64).alias("__pending"), pl.lit(None, pl.Int64).alias("__hold")]
        state.append(self.blocked, arrivals["blocked"].with_columns(nothing))
        blocked = state.lookup(self.blocked, given.panes.select(self.key))
        panes = given.panes.join(blocked, on=self.key, how="anti")
        dropped = {"blocked": len(given.panes) - len(panes)} if len(panes) < len(given.panes) else {}
        return attrs.evolve(given, panes=panes, emitted=len(panes), dropped=dropped)


def test_an_operator_has_further_inputs() -> None:
    def blocking(sink: bl.Memory) -> bl.Pipeline:
        p = bl.Pipeline("blocked")
        read: dict[str, Any] = {
            "timestamp": "at",
            "timestamp_unit": "s",
            "watermark": bl.MonotonousTimestamps(),
        }
        rows = p.read("rows", bl.Rows([row("a", 1, 10), row("b", 2, 20)], schema=COLUMNS), **read)
        blocked = p.read(
            "blocked", bl.Rows([{"user": "b", "at": 1}], schema={"user": str, "at": int}), **read
        )
        operator = ReleaseUnlessBlocked("user", "until")
        rows.apply(operator, others={"blocked": blocked}, name="released").write("out", sink)
        return p

    sink = bl.Memory()
    p = blocking(sink)
    assert "as input 'blocked'" in p.explain()
    records = p.run().batches
    assert [one["user"] for one in sink.rows()] == ["a"]
    assert sum(batch.stages["released"].dropped.get("blocked", 0) for batch in records) == 1
    assert describe_run(p.plan()).stages["released"].inputs == ("blocked", "rows")


@attrs.frozen
class Limited(Release):
    limit: int | None = None


@pytest.mark.parametrize("limit", [0, 1])
def test_each_attribute_is_compared_also_one_that_is_zero(tmp_path: Path, limit: int) -> None:
    def run(limit: int | None) -> None:
        rows = bl.Rows([row("a", 1, 10)], schema=COLUMNS)
        p = released(rows, bl.Memory(), Limited("user", "until", limit=limit))
        p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))

    run(None)
    run(None)
    with pytest.raises(bl.CheckpointError, match=f"limit was not there, now {limit}"):
        run(limit)


def test_the_input_watermark_is_the_least_of_all_inputs() -> None:
    p, sink = bl.Pipeline("slow"), bl.Memory()
    read: dict[str, Any] = {
        "timestamp": "at",
        "timestamp_unit": "s",
        "watermark": bl.BoundedOutOfOrderness("0s"),
    }
    fast = bl.Rows([row("a", at, at) for at in range(1, 20)], schema=COLUMNS)
    rows = p.read("rows", fast, **read)
    slow = p.read("slow", bl.Rows([{"user": "z", "at": 3}], schema={"user": str, "at": int}), **read)
    operator = ReleaseUnlessBlocked("user", "until")
    rows.apply(operator, others={"blocked": slow}, name="released").write("out", sink)
    *before, _ = p.run(bl.LocalRunner(chunk_rows=1)).batches
    assert before[-1].sources["rows"].watermark > 10_000_000
    for batch in before:
        assert batch.stages["released"].input == min(one.watermark for one in batch.sources.values())
    assert len(sink.rows()) == 19


class Bare(bl.CustomOperator):
    """An operator that defines nothing."""


class Misspelt(Release):
    """An operator whose output has a column that step does not emit."""

    @property
    def output(self) -> pl.Schema:
        return pl.Schema({**self.rows, "released": pl.Boolean()})


class Unmarked(Release):
    """An operator whose table does not declare its pending rows."""

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (NoPending(("user",), self.inputs[MAIN].schema),)


class NoKind(Release):
    """An operator whose table has no valid kind."""

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (Untold(("user",), self.inputs[MAIN].schema),)


class Untold(Held):
    """A table that is described by its columns alone."""

    @property
    def table(self) -> Any:
        return self.schema


class NoPending(Held):
    """A table whose schema lacks the columns of pending rows."""

    @property
    def schema(self) -> pl.Schema:
        return self.columns


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        (Release, r"Release is a class; make an object of it: apply\(Release\(...\)\)"),
        (len, "extends bl.CustomOperator, not <built-in function len>; a function of rows goes into map"),
        (3, "extends bl.CustomOperator, not 3$"),
        (Bare(), "Bare does not define inputs, tables, output, step, which every operator needs"),  # type: ignore[abstract]
        (Release("usr", "until"), "there is no column 'usr'; the columns are .*; did you mean 'user'"),
        (
            Release("user", "untl"),
            'Release.step fails with ColumnNotFoundError: unable to find column "untl"',
        ),
        (
            Misspelt("user", "score"),
            "Misspelt.output declares released Boolean, which is not there in the rows",
        ),
        (NoKind("user", "score"), "Untold.table must be one of AppendTable, KeyedTable, .*, not Schema"),
        (Unmarked("user", "score"), "have no column '__pending', '__hold'"),
    ],
)
def test_what_is_no_operator_is_refused_where_it_is_applied(operator: Any, told: str) -> None:
    with pytest.raises(bl.PlanError, match=told):
        plays(bl.Pipeline("p")).apply(operator, name="released")


def test_an_operator_with_other_inputs_than_it_is_given_is_refused() -> None:
    p = bl.Pipeline("p")
    with pytest.raises(bl.PlanError, match="has the further inputs none, and others= has 'side'"):
        plays(p).apply(Release("user", "score"), others={"side": plays(p, "side")})
    with pytest.raises(bl.PlanError, match="does not show the rows that it drops"):
        plays(p, "more").apply(Release("user", "score")).late()
