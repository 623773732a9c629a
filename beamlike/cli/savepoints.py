"""The commands `beamlike savepoint` and `beamlike restore`."""

from __future__ import annotations

import click

from beamlike.api.pipeline import Pipeline
from beamlike.cli.conf import conf_option
from beamlike.cli.plainly import plainly
from beamlike.cli.target import Target, as_arguments, set_option, trust_option
from beamlike.plan.manifest import Runner
from beamlike.system.texts import shell_word


@click.command()
@click.argument("checkpoint")
@click.argument("savepoint")
@click.option("--master", help="Spark: the master; default: local[*].")
@conf_option
def savepoint(checkpoint: str, savepoint: str, master: str | None, config: dict[str, str]) -> None:
    """Save the stopped run of CHECKPOINT in the new folder SAVEPOINT.

    The checkpoint is not changed. Another run can begin from the savepoint: see `restore`.
    """
    from beamlike.api import savepoint as savepoints

    saved = plainly(lambda: savepoints.save(checkpoint, savepoint, master=master, config=config))
    shards = saved.manifest["shards"]
    where = "in process" if saved.manifest["runner"] == Runner.LOCAL else f"on {shards} shards"
    click.echo(f"{saved.path}: the run after batch {saved.batch}, {where}")


@click.command()
@click.argument("savepoint")
@click.argument("checkpoint")
@click.argument("pipeline", type=Target())
@set_option
@click.option(
    "--runner",
    type=click.Choice(["local", "spark"]),
    help="The runner that continues; default: local, or spark with an option of Spark.",
)
@click.option(
    "--shards", type=click.IntRange(1), help="Spark: shards of the new run; default: those of the saved run."
)
@click.option(
    "--state", type=click.Choice(["spark", "files"]), help="Spark: where the new run has its state."
)
@click.option("--master", help="Spark: the master; default: local[*].")
@trust_option
@conf_option
@click.pass_context
def restore(
    ctx: click.Context,
    savepoint: str,
    checkpoint: str,
    pipeline: Pipeline,
    runner: str | None,
    shards: int | None,
    state: str | None,
    master: str | None,
    trust: bool,
    config: dict[str, str],
) -> None:
    """Create CHECKPOINT, with which MODULE:PIPELINE continues the run of SAVEPOINT.

    The pipeline, the runner and the number of shards may change. The saved run must not continue: both runs would write
    the same batches.
    """
    from beamlike.api import savepoint as savepoints

    runner = runner or (Runner.SPARK if any((shards, state, master, config)) else Runner.LOCAL)
    left_out = plainly(
        lambda: savepoints.restore(
            savepoint,
            checkpoint,
            pipeline.plan(),
            runner=runner,
            shards=shards,
            state=state,
            master=master,
            config=config or None,
            trust=trust,
        )
    )
    for line in left_out:
        click.echo(line)
    continued = f"{as_arguments(ctx)} --runner {runner} --checkpoint {shell_word(checkpoint)}"
    click.echo(f"{checkpoint}: continue with beamlike run {continued}")
