"""Sources: built-in ones, and user-defined ones."""

# pyright: strict

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, assert_type

import polars as pl

import beamlike as bl

SCHEMA: Mapping[str, Any] = {"user": str, "points": int, "at": datetime, "tags": list[str]}
BOUND = bl.BoundedOutOfOrderness("5s", per_split=bl.source_file(), idle_after="1m", percentiles=[90])
SCORES: list[dict[str, Any]] = [
    {"user": "ada", "points": 3, "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "tags": ["new"]},
    {"user": "bob", "points": 5, "at": datetime(2026, 1, 31, 12, 1, tzinfo=UTC), "tags": []},
]


def scores(p: bl.Pipeline, name: str = "scores") -> bl.Collection:
    """Returns the scores as a collection, which other modules use."""
    return p.read(name, bl.Rows(SCORES, SCHEMA), timestamp="at", watermark=bl.MonotonousTimestamps())


def files(p: bl.Pipeline, folder: Path) -> None:
    lines = bl.JSONLines(folder / "lines", SCHEMA, 10, partition_by="user", order="path", on_change="ignore")
    p.read("lines", lines, timestamp="at", watermark=BOUND, max_future=None)
    p.read("parquet", bl.Parquet([folder / "a", "b"], SCHEMA, complete=True), timestamp="at", watermark=BOUND)
    csv = bl.CSV(
        str(folder), SCHEMA, delimiter=";", header=False, null_values=["NA"], include_file_paths="file"
    )
    p.read("csv", csv, timestamp="at", timestamp_unit="ms", watermark=bl.TimeOrderedLogs(bl.source_file()))


def services(p: bl.Pipeline) -> None:
    kafka = bl.Kafka(
        ["localhost:9092"],
        "scores",
        bl.json({"user": str, "at": int}),
        key=str,
        start={0: 1200},
        max_offsets_per_trigger=1_000,
        on_data_loss="skip",
        options={"security.protocol": "SSL"},
    )
    lag = bl.ProcessingTimeLag("10s")
    p.read("kafka", kafka, timestamp="at", timestamp_unit="s", watermark=lag)
    redis = bl.Redis("redis://localhost", "s", group="g", fields={"user": str, "at": int}, claim_after="5m")
    p.read("redis", redis, timestamp="at", timestamp_unit="s")
    p.read("avro", bl.Kafka("localhost:9092", "s", bl.avro({"type": "record", "name": "r", "fields": []})))
    p.read("prices", bl.Refreshed(bl.Rows([{"user": "ada", "price": 1.5}]), every="5m"))


def tables(p: bl.Pipeline) -> None:
    p.read("delta", bl.Delta(Path("table"), storage_options={"region": "eu"}, start_version=3, complete=True))
    p.read("sql", bl.Table("sqlite:///scores.db", "scores", grows="id", schema={"id": int, "user": str}))


def of_spark(p: bl.Pipeline) -> None:
    def reader(spark: Any) -> Any:
        return spark.readStream.table("scores")

    late = bl.PercentileLateness(0.99, half_life="1h")
    p.read("spark", bl.SparkSource(reader, schema=SCHEMA, watermark=late), timestamp="at")
    p.read("ingress", bl.SparkSource(reader, SCHEMA), watermark=bl.IngressTimestamps(max_drift="1m"))


class Numbers:
    """A user-defined source that is read in process."""

    bounded = True

    def __init__(self, end: int) -> None:
        self.end = end

    def schema(self) -> pl.Schema:
        return pl.Schema({"n": pl.Int64()})

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        yield pl.LazyFrame({"n": range(self.end)})


class Days:
    """A source whose batches are planned, for both runners."""

    def __init__(self, days: int) -> None:
        self.days = days

    @property
    def bounded(self) -> bool:
        return True

    def schema(self) -> Mapping[str, Any]:
        return {"hour": int}

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        first: int = position.get("next", 0)
        last = min(self.days, first + max(1, rows // 24))
        return bl.PlannedBatch([first, last], {"next": last}, more=last < self.days) if first < last else None

    def read(self, batch: bl.PlannedBatch) -> pl.DataFrame:
        first, last = batch.input
        return pl.DataFrame({"hour": range(24 * first, 24 * last)})


class Announcing(bl.AnnouncingSource):
    """A source that announces how far it is complete."""

    watermark: bl.WatermarkStrategy = bl.AnnouncedWatermark(idle_after="30s")

    def schema(self) -> Mapping[str, Any]:
        return {"at": int}

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        return (
            None
            if position
            else bl.PlannedBatch([0, 9], {"next": 9}, watermark=datetime(1970, 1, 1, tzinfo=UTC))
        )

    def read(self, batch: bl.PlannedBatch) -> pl.DataFrame:
        return pl.DataFrame({"at": range(*batch.input)})


class Marked:
    """A source whose rows announce its watermark."""

    bounded = False
    watermark: ClassVar[bl.Punctuated] = bl.Punctuated(~bl.col("to").is_null(), "to", percentiles=(50,))

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Datetime("us"), "to": pl.Datetime("us")})

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        yield pl.LazyFrame([], self.schema())


def own(p: bl.Pipeline) -> None:
    numbers = p.read("numbers", Numbers(3))
    assert_type(numbers, bl.Collection)
    p.read("days", Days(2), timestamp="hour", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    p.read("announcing", Announcing(), timestamp="at", timestamp_unit="s")
    p.read("marked", Marked(), timestamp="at")
    p.read("frame", bl.Rows(pl.DataFrame(SCORES), rows_per_batch=1))
