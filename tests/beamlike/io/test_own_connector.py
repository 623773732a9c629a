"""A connector unknown to the package: both runners use the capabilities that it declares."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.io import Part
from beamlike.io.sinks import Place, SinkInput

LINES = ["ada 1 5", "bob 2 2", "ada 30 1", "ada 70 9"]
TOTALS = [("ada", 0, 6), ("ada", 60, 9), ("bob", 0, 2)]


@attrs.frozen
class Journal:
    """Lines such as `ada 30 1` of the text files in a folder; on Spark, Spark reads them."""

    folder: str
    bounded: ClassVar[bool] = True
    watermark: ClassVar[bl.BoundedOutOfOrderness] = bl.BoundedOutOfOrderness("5s")

    def schema(self) -> pl.Schema:
        return pl.Schema({"user": pl.String(), "at": pl.Int64(), "score": pl.Int64()})

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        for file in sorted(Path(self.folder).iterdir()):
            words = pl.Series("line", file.read_text().splitlines()).str.split(" ").to_list()
            yield pl.LazyFrame(words, ["user", "at", "score"], orient="row").cast(dict(self.schema()))  # type: ignore[arg-type]

    def read_by_spark(self, spark: Any) -> Any:
        words = (
            "split(value, ' ')[0] user",
            "bigint(split(value, ' ')[1]) at",
            "bigint(split(value, ' ')[2]) score",
        )
        return spark.readStream.text(self.folder).selectExpr(*words)


@attrs.frozen
class OnlyHere:
    """A journal that can only be read in process."""

    journal: Journal
    bounded: ClassVar[bool] = True

    def schema(self) -> pl.Schema:
        return self.journal.schema()

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        return self.journal.chunks(rows)


@attrs.frozen
class OnlySpark:
    """A journal that only Spark can read."""

    journal: Journal
    bounded: ClassVar[bool] = False

    def schema(self) -> pl.Schema:
        return self.journal.schema()

    def read_by_spark(self, spark: Any) -> Any:
        return self.journal.read_by_spark(spark)


@attrs.frozen
class Score:
    """Rows that exist from the beginning."""

    frame: pl.DataFrame = attrs.field(eq=False)
    bounded: ClassVar[bool] = True

    def schema(self) -> pl.Schema:
        return self.frame.schema

    def all_rows(self) -> pl.DataFrame:
        return self.frame

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        yield self.frame.lazy()


@attrs.frozen
class Ledger:
    """A page of JSON for each part, in an existing folder, written by the tasks of Spark."""

    folder: str
    columns: tuple[str, ...] = ()
    distributed: ClassVar[bool] = True
    upserts: ClassVar[bool] = True
    per_pane: ClassVar[bool] = False

    def place(self) -> Place:
        return Place("ledger", self.folder, key=("ledger", self.folder), path=self.folder, names=("page",))

    def fitted(self, rows: SinkInput) -> Self:
        return attrs.evolve(self, columns=rows.key_columns)

    def check(self) -> None:
        if not Path(self.folder).is_dir():
            raise NotADirectoryError(self.folder)

    @contextlib.contextmanager
    def hold(self, run: str) -> Iterator[None]:
        held = Path(self.folder, "held")
        held.touch(exist_ok=False)
        yield
        held.unlink()

    def start(self, run: str) -> None:
        for page in Path(self.folder).glob("page*"):
            page.unlink()

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        page = Path(self.folder, f"page-{part.batch}-{part.task}")
        rows = frame.select(*self.columns, "total").rows(named=True)
        page.write_text(json.dumps(rows, default=lambda time: int(time.timestamp())))

    def rows(self) -> list[tuple[str, int, int]]:
        found = [row for page in Path(self.folder).glob("page*") for row in json.loads(page.read_text())]
        return sorted((row["user"], row["window_start"], row["total"]) for row in found)


@attrs.frozen
class OnlyWrites:
    """A sink with only `write`."""

    into: list[tuple[str, int]] = attrs.field(factory=list, eq=False)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self.into.extend(frame.select("user", "total").rows())


@attrs.frozen
class Broadcast:
    """A sink that only Spark can write."""

    folder: str

    def write_by_spark(self, rows: Any, part: Part) -> None:
        rows.write.json(f"{self.folder}/{part.batch}")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / "page").write_text("\n".join(LINES))
    return Journal(str(folder))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    folder = tmp_path / "ledger"
    folder.mkdir()
    return Ledger(str(folder))


def totals(source: Any, **sinks: Any) -> bl.Pipeline:
    p = bl.Pipeline("own")
    own = getattr(source, "watermark", bl.BoundedOutOfOrderness("5s"))
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=own)
    total = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(total=bl.sum("score"))
    for name, sink in sinks.items():
        total.write(name, sink)
    return p


def frame(journal: Journal) -> pl.DataFrame:
    return pl.concat(journal.chunks(10)).collect()


def test_it_runs_in_process(journal: Journal, ledger: Ledger) -> None:
    other = OnlyWrites()
    for _ in range(2):  # the second run replaces what the first has written
        totals(journal, out=ledger, other=other).run()
        assert ledger.rows() == TOTALS
    assert sorted(other.into) == sorted(2 * [(user, total) for user, _, total in TOTALS])
    totals(Score(frame(journal)), out=ledger).run()
    assert ledger.rows() == TOTALS
    assert totals(journal, out=OnlyWrites()).plan().sources["plays"].source.chunks(10), (
        "a look at it is possible"
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", [lambda of: of, OnlySpark, lambda of: Score(frame(of))])
def test_it_runs_on_spark(kind: Any, journal: Journal, ledger: Ledger, spark: Any, tmp_path: Path) -> None:
    other, broadcast = OnlyWrites(), Broadcast(str(tmp_path / "broadcast"))
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True)
    totals(kind(journal), out=ledger, other=other, broadcast=broadcast).run(runner)
    assert ledger.rows() == TOTALS
    assert sorted(other.into) == [(user, total) for user, _, total in TOTALS]
    assert len(list((tmp_path / "broadcast").glob("*/*.json"))) > 0


def test_what_only_spark_can_do_is_refused_in_process(journal: Journal, ledger: Ledger) -> None:
    with pytest.raises(bl.PlanError, match=r"step 'plays'.*only Spark can read this source"):
        totals(OnlySpark(journal), out=ledger).run()
    with pytest.raises(bl.PlanError, match=r"step 'cast'.*only Spark can write this sink"):
        totals(journal, cast=Broadcast("out")).run()


def test_what_spark_cannot_read_is_refused_before_spark_starts(journal: Journal, ledger: Ledger) -> None:
    totals(OnlyHere(journal), out=ledger).run()
    assert ledger.rows() == TOTALS
    with pytest.raises(
        bl.PlanError, match=r"step 'plays'.*Spark cannot read OnlyHere.*read_by_spark\(spark\)"
    ):
        totals(OnlyHere(journal), out=ledger).run(bl.SparkRunner())


def test_the_plan_says_how_spark_reads_it_and_who_writes_it(journal: Journal, ledger: Ledger) -> None:
    told = totals(journal, out=ledger, other=OnlyWrites()).explain()
    assert "plays: spark reader -> mapInArrow(ingest)" in told
    assert "files: out, dead letters" in told
    assert "foreachBatch(other, records)" in told
    assert "rows kept beside the checkpoint" in totals(Score(frame(journal)), out=ledger).explain()


def test_a_sink_is_checked_and_held_before_anything_is_written(journal: Journal, ledger: Ledger) -> None:
    with pytest.raises(bl.errors.SinkError, match=r"sink 'out'.*cannot be used: NotADirectoryError"):
        totals(journal, out=Ledger("/nowhere")).run()
    with ledger.hold("own"), pytest.raises(bl.errors.SinkError, match=r"sink 'out'.*cannot be opened"):
        totals(journal, out=ledger).run()
    assert ledger.rows() == []


def test_no_other_sink_and_no_source_may_be_where_it_writes(journal: Journal, ledger: Ledger) -> None:
    with pytest.raises(
        bl.PlanError, match=r"writes to ledger .*, and so does 'one'; give it a ledger of its own"
    ):
        totals(journal, one=ledger, two=ledger)
    source = bl.Parquet(ledger.folder, schema=dict(journal.schema()))
    with pytest.raises(bl.PlanError, match=r"step 'plays'.*and 'out' writes to .* a part of that"):
        totals(source, out=ledger).plan()


def test_a_sink_that_replaces_rows_needs_a_key(journal: Journal, ledger: Ledger) -> None:
    p = bl.Pipeline("own")
    plays = p.read("plays", journal, timestamp="at", timestamp_unit="s")
    with pytest.raises(bl.PlanError, match="no output of one"):
        plays.write("out", ledger)
