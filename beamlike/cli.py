"""The command line: run a pipeline, or explain it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from beamlike.errors import CheckpointError, PlanError, StepError, listed, nearest
from beamlike.local import LocalRunner
from beamlike.pipeline import Pipeline
from beamlike.records import BatchRecord
from beamlike.tables import totals_table, watermarks_table


class _Target(click.ParamType[Pipeline]):
    """MODULE:PIPELINE, where PIPELINE is a Pipeline or a function without arguments that makes one."""

    name = "module:pipeline"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pipeline:
        module_name, colon, name = str(value).partition(":")
        if not colon or not name:
            self.fail(
                f"{value!r}: write MODULE:PIPELINE, such as examples.session_lengths:earliest", param, ctx
            )
        # As `python -m` does: modules in the current folder are found.
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            self.fail(f"there is no module {error.name!r} here or installed", param, ctx)
        found = getattr(module, name, None)
        if callable(found) and not isinstance(found, Pipeline | type):
            found = found()
        names = [
            key for key, object_ in vars(module).items() if isinstance(object_, Pipeline) or _makes(object_)
        ]
        if not isinstance(found, Pipeline):
            hint = nearest(name, names)
            self.fail(f"{module_name} has no pipeline {name!r}; it has {listed(names)}{hint}", param, ctx)
        return found


def _makes(candidate: object) -> bool:
    """Whether it is a function without arguments that says it makes a pipeline."""
    returns = getattr(candidate, "__annotations__", {}).get("return")
    arguments = set(getattr(candidate, "__annotations__", {})) - {"return"}
    return (
        callable(candidate) and not arguments and (returns is Pipeline or str(returns).endswith("Pipeline"))
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="beamlike")
def main() -> None:
    """Event-time pipelines on Spark and in process."""


@main.command()
@click.argument("pipeline", type=_Target())
@click.option("--runner", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--checkpoint", help="Spark: the folder in which the run can be continued.")
@click.option(
    "--trigger", default="available_now", show_default=True, help="Spark: or an interval, '10 seconds'."
)
@click.option("--drain", is_flag=True, help="Spark: close all windows at the end of the available input.")
@click.option(
    "--shards", type=click.IntRange(1), help="Spark: parts of each keyed stage; default: the cores."
)
@click.option("--master", help="Spark: where it runs; default: local[*].")
def run(pipeline: Pipeline, runner: str, **options: Any) -> None:
    """Run MODULE:PIPELINE and show what it did."""
    console = Console()
    done = _plainly(lambda: pipeline.run(_runner(runner, options)))
    if done.batches:
        console.print(totals_table(done.batches))
        console.print(watermarks_table(list(done.batches)[-1:]))
    _tell_dead_letters(console, done.batches, done.dead_letters)


@main.command()
@click.argument("pipeline", type=_Target())
def explain(pipeline: Pipeline) -> None:
    """Print the plan of MODULE:PIPELINE: stages, windowing, levels and Spark operators."""
    click.echo(_plainly(pipeline.explain))


def _runner(name: str, options: dict[str, Any]) -> Any:
    given = {
        option: value
        for option, value in options.items()
        if click.get_current_context().get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE
    }
    if name == "local":
        if given:
            named = ", ".join(f"--{option}" for option in given)
            raise click.UsageError(f"{named}: for --runner spark only")
        return LocalRunner()
    from beamlike.spark.runner import SparkRunner

    try:
        return SparkRunner(**options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _plainly(action: Callable[[], Any]) -> Any:
    """Errors that say what the user can do are shown without a traceback."""
    try:
        return action()
    except (PlanError, StepError, CheckpointError, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from None


def _tell_dead_letters(console: Console, batches: list[BatchRecord], where: str) -> None:
    lost = {
        name: sum(batch.sources[name].dead_letters for batch in batches)
        for name in (batches[0].sources if batches else ())
    }
    for name, count in lost.items():
        if count:
            console.print(
                f"{count:,} rows of {name} have no event time that can be read: see {where}", highlight=False
            )


if __name__ == "__main__":
    main()
