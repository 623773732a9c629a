"""The command `beamlike java`: the Java that Spark would run on, and the archive of its classes."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from beamlike.api.pipeline import Pipeline
from beamlike.cli.plainly import plainly
from beamlike.expressions.aggregates import count, mean
from beamlike.io.files.formats import JSONLines, Parquet
from stages.strategies.base import BoundedOutOfOrderness
from windowing.windows import Sessions


@click.command()
@click.option(
    "--archive",
    is_flag=True,
    help="Make an archive of Spark's classes, with which Spark starts faster. Does nothing if there is one.",
)
def java(*, archive: bool) -> None:
    """Print the Java that Spark runs on, and the archive of its classes if there is one."""
    plainly(lambda: _java(archive))


def _java(make: bool) -> None:
    from beamlike.spark.session import class_archive
    from beamlike.spark.session.java import find_java

    found = find_java()
    click.echo(str(found))
    if make and class_archive.find(found) is None:
        click.echo("making the archive of Spark's classes, which takes half a minute", err=True)
        with class_archive.making(found) as options:
            _use_spark(options)
    if (path := class_archive.find(found)) is not None:
        click.echo(f"Archive of Spark's classes, {path.stat().st_size / 1e6:.0f} MB: {path}")


def _use_spark(options: list[str]) -> None:
    """Starts Java with these options, runs a small pipeline with two stages, and waits for the end of Java."""
    from beamlike.spark.runner import SparkRunner
    from beamlike.spark.session.launch import end

    with TemporaryDirectory(prefix="beamlike-java-") as folder, chdir(folder):
        Path("plays").mkdir()
        for number in range(2):
            Path("plays", f"{number}.json").write_text(f'{{"user": "ann", "at": {number}}}\n')
        p = Pipeline("archive")
        source = JSONLines("plays", {"user": str, "at": int}, max_files_per_trigger=1)
        plays = p.read(
            "plays", source, timestamp="at", timestamp_unit="s", watermark=BoundedOutOfOrderness("1s")
        )
        sessions = plays.window_into(Sessions("1m")).group_by("user").aggregate(plays=count())
        sessions.group_by("plays").aggregate(mean=mean("plays")).write("means", Parquet("means"))
        given = {"spark.driver.extraJavaOptions": " ".join(options)}
        # Two shards, as a single one would need fewer classes.
        runner = SparkRunner(
            checkpoint="checkpoint", drain=True, shards=2, master="local[2]", config=given, quiet=True
        )
        try:
            p.run(runner)
        finally:
            end()
