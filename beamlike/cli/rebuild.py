"""The command `beamlike rebuild`."""

from __future__ import annotations

import click

from beamlike.api.pipeline import Pipeline
from beamlike.cli.plainly import plainly
from beamlike.cli.target import Target, as_arguments, set_option
from beamlike.runtime.savepoint.trust import trust_option
from beamlike.system.printable import printable
from beamlike.system.texts import shell_word
from windowing.time import Microseconds


@click.command()
@click.argument("checkpoint")
@click.argument("savepoint")
@click.argument("pipeline", type=Target())
@set_option
@click.option(
    "--stage", "stages", required=True, multiple=True, help="A stage that has changed; repeat for several."
)
@click.option("--since", metavar="TIME", help="Leave rows of an earlier event time out, such as 2026-11-01.")
@click.option(
    "--into",
    metavar="FOLDER",
    help="A new folder for the rows that the stages have for sinks, as Parquet files.",
)
@click.option("--master", help="For a run on Spark: the master that reads its state; default: local[*].")
@click.pass_context
def rebuild(
    ctx: click.Context,
    checkpoint: str,
    savepoint: str,
    pipeline: Pipeline,
    stages: tuple[str, ...],
    since: str | None,
    into: str | None,
    master: str | None,
) -> None:
    """Build stages of MODULE:PIPELINE that have changed anew from the input of the stopped run of CHECKPOINT.

    The new folder SAVEPOINT has their state and that of the stages that read them, and the state of the run for all
    others. Sinks receive nothing. The last line is the command with which the run goes on.
    """
    from beamlike.io.test_stream.times import instant
    from beamlike.replaying.rebuilding.rebuild import rebuild as rebuilt

    try:
        time = None if since is None else Microseconds(instant(since))
    except ValueError as error:
        raise click.UsageError(f"--since {since!r}: {error}") from None
    found = plainly(
        lambda: rebuilt(checkpoint, savepoint, pipeline, stage=stages, since=time, into=into, master=master)
    )
    for line in found.lines():
        click.echo(printable(line))
    where = f"--runner {found.runner}" + (f" --shards {found.shards}" if found.shards > 1 else "")
    where += trust_option(pipeline.plan())
    click.echo(
        f"continue with beamlike restore {shell_word(savepoint)} NEW_CHECKPOINT {as_arguments(ctx)} {where}"
    )
