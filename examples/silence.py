"""Silent sensors: an alert after ten minutes without a reading, and a message when a sensor sends again.

    python -m examples.silence [--runner local|spark]

Some sensors die, others pause. The result is compared with a plain polars computation over all readings.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.dates import DateFormatter
from rich.console import Console

import beamlike as bl
from examples.drawing import figures, save

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SILENCE = timedelta(minutes=10)
BOUND = timedelta(seconds=30)  # the greatest delay of a reading behind a newer one

_SCHEMA = {"sensor": str, "what": str, "since": datetime}
_MICROSECOND = timedelta(microseconds=1)
_MINUTE = 60_000_000  # microseconds


@attrs.frozen
class Sensors:
    """The number of sensors, each with a reading a minute for some hours. One of eight dies, one of five pauses."""

    sensors: int = 200
    hours: int = 3
    seed: int = 7


def readings(asked: Sensors) -> pl.DataFrame:
    """Returns the readings in order of arrival: sensor, at, celsius. One pause lasts for exactly ten minutes."""
    rng = np.random.default_rng(asked.seed)
    heard = [_heard(rng, number, asked.hours * 60 * _MINUTE) for number in range(asked.sensors)]
    sensor = pl.Series("sensor", [f"s{number:03d}" for number, at in enumerate(heard) for _ in at])
    at = np.concatenate(heard)
    arrival = pl.Series("arrival", at + rng.integers(0, BOUND // _MICROSECOND, len(at)))
    columns = [
        sensor,
        pl.Series("at", at),
        pl.Series("celsius", rng.normal(20, 2, len(at)).round(1)),
        arrival,
    ]
    since = (pl.lit(START) + pl.duration(microseconds="at")).alias("at")
    return pl.DataFrame(columns).with_columns(since).sort("arrival", "sensor").drop("arrival")


def _heard(rng: np.random.Generator, number: int, end: int) -> npt.NDArray[np.int64]:
    """Returns the times of the readings of a sensor, in microseconds from the beginning."""
    at = np.arange(rng.integers(0, _MINUTE), end, _MINUTE) + rng.integers(0, _MINUTE // 12)
    dies = rng.uniform(0.2, 0.9) * end if rng.random() < 1 / 8 else end
    begins = rng.uniform(0.1, 0.7) * end
    ends = begins + (rng.uniform(5, 40) * _MINUTE if rng.random() < 1 / 5 else 0)
    if number == 0:  # the timer fires before the tenth reading after it
        begins, ends, dies = at[20] + 1, at[30] - 1, end
    return at[((at < begins) | (at > ends)) & (at < dies)]


class Silence(bl.Process):
    """Reports once that a sensor has been silent for ten minutes, and once that it is back."""

    last = bl.Value(datetime)
    silent = bl.Value(bool, default=False)
    quiet = bl.EventTimer(at_end="drop")  # the end of the recording is not a silence

    def __init__(self, after: timedelta) -> None:
        self.after = after

    def element(self, row: dict[str, Any]) -> Any:
        if self.silent:
            yield {"sensor": self.key.sensor, "what": "back", "since": self.last}
        self.last, self.silent = self.time, False
        self.quiet.after(self.after)

    def on_quiet(self) -> Any:
        self.silent = True
        yield {"sensor": self.key.sensor, "what": "silent", "since": self.last}


def alerts(source: Any) -> tuple[bl.Pipeline, bl.Collection]:
    """Declares the pipeline; returns it with the collection of alerts."""
    p = bl.Pipeline("silence")
    heard = p.read("readings", source, timestamp="at", watermark=bl.BoundedOutOfOrderness(BOUND))
    return p, heard.group_by("sensor", name="silence").process(Silence(SILENCE), _SCHEMA)


def expected(heard: pl.DataFrame) -> pl.DataFrame:
    """Computes the same in polars: sensor, what, since, event_time. A sensor that may still send is not silent."""
    known = heard.select(pl.col("at").max()).item() - BOUND
    gaps = (
        heard.sort("sensor", "at")
        .select("sensor", since="at", back=pl.col("at").shift(-1).over("sensor"), told=pl.col("at") + SILENCE)
        .filter(pl.col("told") <= pl.col("back").fill_null(known))
    )
    began = gaps.select("sensor", pl.lit("silent").alias("what"), "since", event_time="told")
    ended = gaps.drop_nulls().select("sensor", pl.lit("back").alias("what"), "since", event_time="back")
    return _in_order(pl.concat([began, ended]))


def _in_order(told: pl.DataFrame) -> pl.DataFrame:
    return told.sort("sensor", "event_time", "what", descending=[False, False, True])


def run(heard: pl.DataFrame, runner: Any = None, batches: int = 20) -> pl.DataFrame:
    """Runs the pipeline: sensor, what, since, event_time."""
    p, told = alerts(bl.Rows(heard, rows_per_batch=-(-len(heard) // batches)))
    result = bl.Memory()
    told.write("alerts", result)
    p.run(runner)
    return _in_order(result.frame().select("sensor", "what", "since", "event_time"))


def picture(heard: pl.DataFrame, told: pl.DataFrame, path: Path, most: int = 24) -> None:
    """Draws the silent sensors, the length of their silence, and the times of the alerts."""
    sensors = told["sensor"].unique(maintain_order=True).head(most).to_list()
    figure, ((panel,),) = figures(1, 1, (9, 0.22 * len(sensors) + 1))
    end = heard["at"].max()
    for place, sensor in enumerate(sensors):
        panel.plot([START, end], [place] * 2, color="#56B4E9", linewidth=1)
        own = told.filter(pl.col("sensor") == sensor)
        back = dict(own.filter(pl.col("what") == "back").select("since", "event_time").iter_rows())
        for since, time in own.filter(pl.col("what") == "silent").select("since", "event_time").iter_rows():
            panel.plot([since, back.get(since, end)], [place] * 2, color="#D55E00", linewidth=3)
            panel.plot([time], [place], "o", color="#D55E00", markersize=4)
    panel.set_yticks(range(len(sensors)), sensors, fontsize="x-small")
    panel.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    panel.set_title("Sensors: silences are red, and told at the dots", fontsize="medium")
    save(figure, path)


@click.command(context_settings={"show_default": True})
@click.option("--runner", "on", default="local", type=click.Choice(["local", "spark"]))
@click.option("--sensors", default=200, type=click.IntRange(1))
@click.option("--seed", default=7, type=click.IntRange(0), help="Seed of the generated readings.")
@click.option("--work", default=Path("build/demo"), type=click.Path(file_okay=False, path_type=Path))
def main(on: str, sensors: int, seed: int, work: Path) -> None:
    """Find silent sensors and draw them; exit code 1 if the alerts are not as expected."""
    console = Console()
    heard = readings(Sensors(sensors, seed=seed))
    told = run(heard, bl.SparkRunner() if on == "spark" else bl.LocalRunner())
    right = told.equals(expected(heard))
    silent = told.filter(pl.col("what") == "silent")
    console.print(
        f"{len(heard):,} readings of {sensors} sensors: {len(silent)} silences of more than ten minutes, "
        f"{len(told) - len(silent)} of which ended",
        highlight=False,
    )
    work.mkdir(parents=True, exist_ok=True)
    picture(heard, told, work / "silence.svg")
    console.print(
        "[green]OK[/green] as polars finds them" if right else "[red]WRONG[/red] polars finds others"
    )
    console.print(f"To look at: {work / 'silence.svg'}", highlight=False, soft_wrap=True)
    sys.exit(not right)


if __name__ == "__main__":
    main()
