"""A process that plays a pipeline of a revision: `python -m beamlike.cli.played CODE TARGET CHECKPOINT SINCE OUT`."""

from __future__ import annotations

import os
import sys

import click

from beamlike.cli.plainly import plainly
from beamlike.cli.target import Target, set_option
from beamlike.replaying.diffing.playing import play
from beamlike.replaying.opening import open_run


@click.command()
@click.argument("code")
@click.argument("target")
@click.argument("checkpoint")
@click.argument("since", type=int)
@click.argument("out")
@set_option
@click.pass_context
def main(ctx: click.Context, code: str, target: str, checkpoint: str, since: int, out: str) -> None:
    """Play TARGET, of which the modules are in the folder CODE, and save its outcome in the folder OUT."""
    sys.path.insert(0, code)
    # Last, so that modules as they are now are found only if the revision does not have them.
    sys.path.append(os.getcwd())
    try:
        pipeline = Target().convert(target, None, ctx)
    except click.UsageError as error:  # without the usage of this process
        raise click.ClickException(error.format_message()) from None
    plainly(lambda: play(pipeline.plan(), open_run(checkpoint), since).save(out))


if __name__ == "__main__":
    main()
