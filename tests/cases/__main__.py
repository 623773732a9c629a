"""`python -m tests.cases FILE.yaml` plays cases: one line each, exit status 1 if any failed."""

from __future__ import annotations

import sys

import click

from tests.cases.case import load
from tests.cases.play import play


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--runner", type=click.Choice(["stage", "local", "spark"]), default="stage", show_default=True)
def main(file: str, runner: str) -> None:
    """Play the cases in FILE on a runner."""
    results = play(load(file), runner)
    for result in results:
        click.echo(str(result))
    sys.exit(any(result.status == "failed" for result in results))


if __name__ == "__main__":
    main(prog_name="python -m tests.cases")
