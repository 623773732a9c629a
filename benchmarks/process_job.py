"""Silent sensors, as in `examples/silence.py`, on our runners and by hand in native Spark: a process of its own.

The output has sensor and since, a row for each silence; at the end of input every sensor is silent.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pandas as pd
import polars as pl
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import beamlike as bl
from benchmarks import native
from benchmarks.native import BATCHES
from benchmarks.run_job import with_input

SCHEMA = {"sensor": str, "at": datetime, "celsius": float}
SILENCE = timedelta(minutes=10)
_MILLIS = 600_000


class Silence(bl.Process):
    """Reports that a sensor has been silent for ten minutes."""

    since = bl.Value(datetime)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.since = self.time
        self.quiet.after(SILENCE)

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"sensor": self.key.sensor, "since": self.since}


def silence(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Finds silences in columns: `rows` has the readings of a sensor next to each other, in order of time."""
    seen = rows.select("sensor", "event_time").join(state, on="sensor", how="left", maintain_order="left")
    sensor, at = pl.col("sensor"), pl.col("event_time")
    first, last = (sensor != sensor.shift(step, fill_value="") for step in (1, -1))
    seen = seen.with_columns(pl.when(~first).then(at.shift()).otherwise("since").alias("since"), last=last)
    pauses = seen.filter(at - pl.col("since") >= SILENCE).select("sensor", "since")
    silent = due.join(rows, on="sensor", how="anti").join(state, on="sensor").select("sensor", "since")
    told = pl.concat([pauses, silent]).with_columns(event_time=pl.col("since") + SILENCE)
    return told, seen.filter("last").select("sensor", since=at, quiet=at + SILENCE)


TOLD = {"sensor": str, "since": datetime}


def with_process(heard: bl.Collection) -> bl.Collection:
    """Calls a method for each reading and each timer."""
    return heard.group_by("sensor", name="silence").process(Silence(), TOLD)


def in_batches(heard: bl.Collection) -> bl.Collection:
    """Calls a function of frames for each batch."""
    state, timers = {"since": datetime}, {"quiet": bl.EventTimer()}
    by_sensor = heard.group_by("sensor", name="silence")
    return by_sensor.process_batches(silence, TOLD, state=state, timers=timers)


Tier = Callable[[bl.Collection], bl.Collection]


def pipeline(data: Path, out: Path, tier: Tier = with_process) -> bl.Pipeline:
    """Declares the job, with a file of readings in a batch."""
    p = bl.Pipeline("silence")
    source = bl.Parquet(data / "readings", SCHEMA, max_files_per_trigger=1)
    heard = p.read("readings", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("30s"))
    tier(heard).write("silences", bl.Parquet(out))
    return p


def run_local(data: Path, out: Path, cores: int) -> None:
    """Runs the job in this process."""
    pipeline(data, out).run()


def run_batches(data: Path, out: Path, cores: int) -> None:
    """Runs the job in this process, with a function of frames."""
    pipeline(data, out, in_batches).run()


def run_spark(data: Path, out: Path, cores: int) -> None:
    """Runs the job on the Spark runner."""
    with tempfile.TemporaryDirectory() as checkpoint:
        spark = bl.SparkRunner(checkpoint=checkpoint, drain=True, master=f"local[{cores}]", shards=cores)
        run = spark.start(pipeline(data, out).plan())
        (query,) = run.session.streams.active
        run.wait()
        _keep(query, with_input(run.batches), out)


class ByHand(StatefulProcessor):
    """The processor for native Spark. It finds pauses between rows of a batch itself, because no timer fires there."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.since = handle.getValueState("since", "millis long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        times = sorted(int(at.timestamp() * 1000) for frame in rows for at in frame["at"])
        known = self.since.get()
        before = [known[0]] if known is not None else []
        if known is not None:
            self.handle.deleteTimer(known[0] + _MILLIS)
        for at, after in zip([*before, *times], times if before else times[1:], strict=False):
            if after - at >= _MILLIS:
                yield _told(key, at)
        self.since.update((times[-1],))
        self.handle.registerTimer(times[-1] + _MILLIS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield _told(key, expiredTimerInfo.getExpiryTimeInMs() - _MILLIS)
        self.since.clear()

    def close(self) -> None:
        return None


def _told(key: Any, since: int) -> pd.DataFrame:
    return pd.DataFrame({"sensor": [key[0]], "since": [pd.Timestamp(since, unit="ms")]})


def run_native(data: Path, out: Path, cores: int) -> None:
    """Runs the job with `transformWithStateInPandas`."""
    spark = native.session(cores)
    heard = spark.readStream.schema("sensor string, at timestamp, celsius double")
    heard = heard.option("maxFilesPerTrigger", 1).parquet(str(data / "readings"))
    told = (
        heard.withWatermark("at", "30 seconds")
        .groupBy("sensor")
        .transformWithStateInPandas(ByHand(), "sensor string, since timestamp", "Append", "eventTime")
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            told.writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        came = {each.batchId for each in query.recentProgress if each.numInputRows}
        _keep(query, came, out)
        spark.stop()


def _keep(query: Any, came: set[int], out: Path) -> None:
    """Writes the seconds of the micro-batches with input rows."""
    progress = [json.loads(each.json) for each in query.recentProgress]
    seconds = [each["durationMs"]["triggerExecution"] / 1e3 for each in progress if each["batchId"] in came]
    (out / BATCHES).write_text(json.dumps(seconds))


_RUN = {"local": run_local, "batches": run_batches, "spark": run_spark, "native": run_native}


@click.command()
@click.argument("engine", type=click.Choice(list(_RUN)))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
def main(engine: str, data: Path, out: Path, cores: int) -> None:
    """Find silent sensors in the readings below the folder DATA and write them below the folder OUT."""
    out.mkdir(parents=True, exist_ok=True)
    _RUN[engine](data, out, cores)


if __name__ == "__main__":
    main()
