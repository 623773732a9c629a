"""Sources that announce their watermark: in process and on Spark, killed, resumed, and moved between runners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from tests.support.parcels import Crates, Parcels
from tests.support.places import ROOT

PARCELS = [
    ([("ada", 1), ("ada", 50), ("bob", 70)], 10),
    ([("ada", 30), ("bob", 65)], 65),
    ([("bob", 20), ("ada", 130)], None),
    ([("ada", 140)], 120),
]
# The third parcel arrives when the watermark is at 65, so its rows of the first minute are late.
PANES = [("ada", 0, 3), ("bob", 60, 2)]


def filled(folder: Path) -> Parcels:
    folder.mkdir()
    parcels = Parcels(str(folder))
    for rows, complete in PARCELS:
        parcels.put(rows, complete)
    return parcels


def counts(source: Parcels | Crates, out: Path) -> bl.Pipeline:
    """Declares the number of rows of each user in each minute."""
    p = bl.Pipeline("parcels")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s")
    plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).write(
        "counts", bl.Parquet(str(out))
    )
    return p


def panes(out: Path) -> list[tuple[str, int, int]]:
    files = sorted(out.glob("*.parquet"))
    if not files:
        return []
    start = pl.col("window_start").dt.epoch("s")
    return sorted(pl.concat(map(pl.read_parquet, files)).select("user", start, "n").rows())


def watermarks(run: Any) -> list[float]:
    return [batch.sources["plays"].watermark / 1e6 for batch in run.batches]


def test_windows_close_by_what_the_source_announces(tmp_path: Path) -> None:
    source = filled(tmp_path / "queue")
    run = counts(source, tmp_path / "out").run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint")))
    assert watermarks(run) == [10, 65, 65, 120]
    assert panes(tmp_path / "out") == PANES
    assert [batch.stages["plays.aggregate"].dropped for batch in run.batches] == [{}, {}, {"late": 1}, {}]
    assert source.acknowledged == [f"{n:06d}.json" for n in range(4)]


def test_a_batch_may_have_parts(tmp_path: Path) -> None:
    source = filled(tmp_path / "queue")
    run = counts(Crates(source), tmp_path / "out").run(
        bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"))
    )
    assert watermarks(run) == [65, 120]
    assert panes(tmp_path / "out") == PANES
    assert source.acknowledged == [f"{n:06d}.json" for n in range(4)]


def test_a_run_without_a_checkpoint_reads_what_is_there_and_commits_nothing(tmp_path: Path) -> None:
    class Lasting(Parcels):
        def plan(self, position: Any, rows: int) -> bl.PlannedBatch | None:
            there = sorted(Path(self.folder).glob("*.json"))[position.get("done", 0) :]
            return (
                bl.PlannedBatch(there[0].name, {"done": position.get("done", 0) + 1}, True) if there else None
            )

    filled(tmp_path / "queue")
    source = Lasting(str(tmp_path / "queue"))
    p = bl.Pipeline("p")
    assert len(p.read("plays", source, timestamp="at", timestamp_unit="s").collect()) == 8
    assert p.read("first", source).head(3)["at"].to_list() == [1, 50, 70]
    assert source.acknowledged == []


def test_a_batch_that_was_not_committed_comes_again_and_one_that_was_is_told_of_again(tmp_path: Path) -> None:
    source, checkpoint = filled(tmp_path / "queue"), str(tmp_path / "checkpoint")
    killed = (
        "import os, sys; from pathlib import Path; import beamlike as bl\n"
        "from tests.beamlike.io.test_announcing import counts; from tests.support.parcels import Parcels\n"
        "class Killed(Parcels):\n"
        "    def {method}(self, taken):\n"
        "        if taken.input == '000001.json': os._exit(9)\n"
        "        return super().{method}(taken)\n"
        "folder, checkpoint, out = sys.argv[1:]\n"
        "counts(Killed(folder), Path(out)).run(bl.LocalRunner(checkpoint=checkpoint))\n"
    )
    for method in ("read", "committed"):
        code = [sys.executable, "-c", killed.replace("{method}", method)]
        run = subprocess.run([*code, source.folder, checkpoint, str(tmp_path / "out")], cwd=ROOT, timeout=120)
        assert run.returncode == 9
        # A batch is announced again if the one after it is not recorded.
        assert {*source.acknowledged} == {"000000.json"}
    # The checkpoint knows the source by its kind.
    resumed = type("Killed", (Parcels,), {})(source.folder)
    run = counts(resumed, tmp_path / "out").run(bl.LocalRunner(checkpoint=checkpoint))
    assert panes(tmp_path / "out") == PANES
    told = [*dict.fromkeys(source.acknowledged)]
    assert told == ["000000.json", "000001.json", "000002.json", "000003.json"]


def test_what_is_no_plan_is_an_error_that_says_so(tmp_path: Path) -> None:
    class Wrong(Parcels):
        def plan(self, position: Any, rows: int) -> Any:
            return (0, {})

    class Timeless(Parcels):
        def plan(self, position: Any, rows: int) -> Any:
            return bl.PlannedBatch(0, {}, watermark="noon")  # type: ignore[arg-type]

    class Placeless(Parcels):
        def plan(self, position: Any, rows: int) -> Any:
            return bl.PlannedBatch(0, 7)  # type: ignore[arg-type]

    class Unkept(Parcels):
        def plan(self, position: Any, rows: int) -> Any:
            return bl.PlannedBatch({1}, {"next": 1})

    for kind, why in (
        (Wrong, "must return a bl.PlannedBatch"),
        (Timeless, "must be a datetime or microseconds"),
        (Placeless, "the position must be a dict .*, not 7"),
        (Unkept, "must be data that JSON can hold: .*set"),
    ):
        with pytest.raises(TypeError, match=rf"{kind.__name__}.plan.* {why}.*"):
            bl.Pipeline("p").read("plays", kind(str(tmp_path))).collect()


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (None, r"(Wrong|Parts) must return rows as a DataFrame or LazyFrame of polars, not as NoneType"),
        (pl.DataFrame({"at": [1]}).to_arrow(), "must return .* not as Table"),
        (
            pl.DataFrame({"at": [1], "usr": ["ada"]}),
            "source 'plays' .* without column 'user' .* did you mean 'usr'",
        ),
        (
            pl.DataFrame({"user": ["ada"], "at": ["1"]}),
            "source 'plays' returned column 'at' as String, but its schema says Int64",
        ),
    ],
)
def test_rows_that_are_not_as_declared_are_an_error_that_says_so(tmp_path: Path, rows: Any, why: str) -> None:
    class Wrong(Parcels):
        def read(self, taken: Any) -> Any:
            return rows

    class Parts(Crates):
        def read_part(self, part: Any, rows: int) -> Any:
            yield self.parcels.read(part)

    parcels = Wrong(str(tmp_path))
    parcels.put([("ada", 1)], 1)
    for source in (parcels, Parts(parcels)):
        with pytest.raises(TypeError, match=why):
            bl.Pipeline("p").read("plays", source).collect()


def test_nulls_have_the_type_that_was_declared(tmp_path: Path) -> None:
    class Nameless(Parcels):
        def read(self, taken: Any) -> Any:
            return pl.DataFrame({"user": [None], "at": [1]})

    source = Nameless(str(tmp_path))
    source.put([("ada", 1)], 1)
    found = bl.Pipeline("p").read("plays", source).collect()
    assert found["user"].dtype == pl.String


@pytest.mark.parametrize(
    ("schema", "why"),
    [(["at"], "must give the columns with their types"), ({"at": "int"}, "schema: .*'int'")],
)
def test_what_is_no_schema_is_an_error_that_says_so(tmp_path: Path, schema: Any, why: str) -> None:
    class Wrong(Parcels):
        def schema(self) -> Any:
            return schema

    with pytest.raises(TypeError, match=rf"step 'plays': Wrong.*{why}"):
        bl.Pipeline("p").read("plays", Wrong(str(tmp_path)))


def test_a_plan_is_refused_that_would_not_be_told_what_is_announced(tmp_path: Path) -> None:
    p, source = bl.Pipeline("p"), Parcels(str(tmp_path))
    announced = bl.AnnouncedWatermark()
    with pytest.raises(bl.PlanError, match="Rows announces no watermark"):
        p.read("rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=announced)
    split = bl.AnnouncedWatermark(per_split="user")
    with pytest.raises(bl.PlanError, match="announces one watermark for all of it; leave out per_split"):
        p.read("split", source, timestamp="at", timestamp_unit="s", watermark=split)
    for name in ("one", "other"):
        p.read(name, source).write(f"out {name}", bl.Memory())
    with pytest.raises(bl.PlanError, match="reads the same Parcels as 'one'"):
        p.run()


def test_others_go_on_without_a_source_that_announces_nothing(tmp_path: Path) -> None:
    now = iter(range(0, 10**9, 1_000_000))
    source = filled(tmp_path / "queue")
    rows = bl.Rows([{"user": "eve", "at": at} for at in range(0, 400, 40)], rows_per_batch=1)
    p, seen = bl.Pipeline("p"), bl.Memory()
    idle = bl.AnnouncedWatermark(idle_after="20s")
    time = {"timestamp": "at", "timestamp_unit": "s"}
    both = bl.flatten(
        p.read("plays", source, watermark=idle, **time),
        p.read("rows", rows, watermark=bl.MonotonousTimestamps(), **time),
    )
    both.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("counts", seen)
    run = p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), clock=lambda: next(now)))
    assert [batch.sources["plays"].idle for batch in run.batches][-1]
    (stage,) = run.batches[-1].stages.values()
    assert stage.input == 360_000_000


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("as_parts", "moved"), [(False, [10, 65, 120]), (True, [65, 120])])
def test_spark_gives_what_is_given_in_process(
    spark: Any, tmp_path: Path, as_parts: bool, moved: list[float]
) -> None:
    parcels, out = filled(tmp_path / "queue"), tmp_path / "out"
    source, checkpoint = Crates(parcels) if as_parts else parcels, tmp_path / "checkpoint"
    run = counts(source, out).run(bl.SparkRunner(str(checkpoint), session=spark, shards=2))
    assert [*dict.fromkeys(watermarks(run))] == moved
    assert panes(out) == PANES
    assert parcels.acknowledged == [f"{n:06d}.json" for n in range(4)]
    notes = checkpoint / "beamlike" / "batches" / "plays"
    left = {path.name for path in notes.iterdir() if path.suffix == ".json"}
    assert {name for name in left if not name.startswith("_done-")} == {"_before.json"}
    assert len(left) <= 1 + 100  # a replay reads the plans of the last batches


@pytest.mark.spark
@pytest.mark.slow
def test_a_savepoint_goes_on_where_the_source_was_on_either_runner(spark: Any, tmp_path: Path) -> None:
    source, out = filled(tmp_path / "queue"), tmp_path / "out"
    counts(source, out).run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2))
    bl.savepoint.save(str(tmp_path / "checkpoint"), str(tmp_path / "saved"), session=spark)
    here = str(tmp_path / "here")
    bl.savepoint.restore(str(tmp_path / "saved"), here, counts(source, out).plan(), runner="local")
    source.put([("ada", 150)], 200)
    counts(source, out).run(bl.LocalRunner(checkpoint=here))
    assert panes(out) == sorted([*PANES, ("ada", 120, 3)])
    bl.savepoint.save(here, str(tmp_path / "saved again"))
    there = str(tmp_path / "there")
    bl.savepoint.restore(
        str(tmp_path / "saved again"), there, counts(source, out).plan(), session=spark, shards=2
    )
    source.put([("ada", 210)], 300)
    counts(source, out).run(bl.SparkRunner(there, session=spark))
    assert panes(out) == sorted([*PANES, ("ada", 120, 3), ("ada", 180, 1)])
    assert source.acknowledged == [f"{n:06d}.json" for n in range(6)]
