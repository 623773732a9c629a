"""The command `beamlike diff`."""

from __future__ import annotations

import sys
from typing import Any

import click

from beamlike.cli.plainly import plainly
from beamlike.cli.target import set_option, settings_of
from beamlike.cli.types import DurationType
from beamlike.cli.versions import FAILED, Version, VersionType
from beamlike.system.printable import printable
from windowing.time import Microseconds


class _ForCI(click.Command):
    """A command whose errors exit with 2, as 1 means that the versions differ."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.show()
            sys.exit(FAILED)
        except (click.Abort, click.exceptions.Exit, SystemExit):
            raise
        except Exception:
            # An error of the pipeline's own code: Python would exit with 1.
            import traceback

            traceback.print_exc()
            sys.exit(FAILED)


@click.command(cls=_ForCI)
@click.argument("old", type=VersionType())
@click.argument("new", type=VersionType())
@click.option("--run", "checkpoint", required=True, metavar="CHECKPOINT", help="The checkpoint of the run.")
@click.option(
    "--last", type=DurationType(), help="Compare only batches of so long before the last one, such as 1h."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Also write a page to this file.")
@set_option
@click.pass_context
def diff(
    ctx: click.Context, old: Version, new: Version, checkpoint: str, last: int | None, output: str | None
) -> None:
    """Compare two versions of a pipeline over the recorded input of a run. No sink receives anything.

    OLD and NEW are MODULE:PIPELINE, or MODULE@REVISION:PIPELINE for the files of this folder at a revision of git, such
    as app@main:pipeline. The exit code is 0 if no pane and no row of a sink differs and NEW can continue the run, 1
    if something differs, and 2 for an error.
    """
    from beamlike.replaying.diffing.diff import Diff, compared_since
    from beamlike.replaying.opening import open_run

    run = plainly(lambda: open_run(checkpoint))
    since = plainly(lambda: compared_since(run, None if last is None else Microseconds(last)))
    found = Diff.of(run, since, *(one.play(ctx, run, since, settings_of(ctx)) for one in (old, new)))
    click.echo(printable(str(found), keep="\n"))
    if output is not None:
        try:
            found.write_report(output)
        except OSError as error:
            raise click.ClickException(f"cannot write {output!r}: {error}") from None
    sys.exit(1 if found else 0)
