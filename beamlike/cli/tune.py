"""The command `beamlike tune`."""

from __future__ import annotations

from typing import Any

import click

from beamlike.cli.plainly import plainly
from beamlike.cli.types import DurationType, TriggerType
from beamlike.system.printable import printable
from windowing.panes import Accumulation
from windowing.triggers.base import Trigger


@click.command()
@click.argument("run")
@click.option("--source", help="Only this source.")
@click.option(
    "--bound",
    "bounds",
    type=DurationType(),
    multiple=True,
    help="A further bound, such as 45s; may be given several times.",
)
@click.option("--stage", help="Predict the panes of this stage with other triggers, instead of bounds.")
@click.option(
    "--trigger",
    "triggers",
    type=TriggerType(),
    multiple=True,
    help="A trigger for the stage, such as 'AfterWatermark(early=AfterCount(10))'; may be given several times.",
)
@click.option("--accumulation", type=click.Choice([one.value for one in Accumulation]), help="For --trigger.")
def tune(
    run: str,
    source: str | None,
    bounds: tuple[int, ...],
    stage: str | None,
    triggers: tuple[Trigger, ...],
    accumulation: Any,
) -> None:
    """Predict what other bounds of a source's watermark would lose, and how long panes would wait.

    With --stage or --trigger, predict the panes, rows and corrections of a stage with other triggers.

    RUN is a file of records, a folder with one, or a checkpoint.
    """
    from beamlike.observe.tuning.trigger_tuning import tune_triggers
    from beamlike.observe.tuning.tuning import tune as predicted
    from windowing.time import Microseconds

    if stage is None and not triggers and accumulation is None:
        click.echo(str(plainly(lambda: predicted(run, source=source, bounds=[*map(Microseconds, bounds)]))))
        return
    if source is not None or bounds:
        raise click.UsageError(
            "--source and --bound predict bounds; leave them out with --stage and --trigger"
        )
    found = plainly(lambda: tune_triggers(run, stage=stage, triggers=triggers, accumulation=accumulation))
    click.echo(printable(str(found), keep="\n"))
