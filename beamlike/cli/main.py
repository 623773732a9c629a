"""The command line: runs, explains and inspects pipelines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from beamlike.api.pipeline import Pipeline
from beamlike.cli.completion import completion
from beamlike.cli.conf import conf_option
from beamlike.cli.diff import diff
from beamlike.cli.java import java
from beamlike.cli.logs import LoggingGroup, log_option
from beamlike.cli.mcp_server import mcp
from beamlike.cli.new import new
from beamlike.cli.plainly import TROUBLESHOOTING, plainly
from beamlike.cli.rebuild import rebuild
from beamlike.cli.replays import record, replay, show_trace, trace_options
from beamlike.cli.savepoints import restore, savepoint
from beamlike.cli.sql import sql
from beamlike.cli.target import Target, set_option
from beamlike.cli.tune import tune
from beamlike.cli.types import DurationType
from beamlike.cli.ui import ui
from beamlike.local.runner import LocalRunner
from beamlike.runtime.display.summary import Run, left_open, lost_rows, sink_rows
from beamlike.runtime.display.tables import sinks_table, totals_table, watermarks_table
from beamlike.system.printable import printable
from beamlike.system.signals import Interrupted

_INTERRUPTED = 130  # the exit code of shells for SIGINT


@click.group(cls=LoggingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="beamlike")
def main() -> None:
    """Event-time pipelines on Spark and in process."""


main.sections = {
    "First": ("run", "check", "explain", "ui", "why"),
    "Begin": ("new", "sql", "schema", "completion", "java", "mcp"),
    "Observe": ("status", "watch", "report", "alerts"),
    "Change a run": ("savepoint", "restore", "rebuild", "tune"),
    "Play again": ("record", "replay", "diff"),
}
for command in (new, completion, java, savepoint, restore, replay, record, rebuild, tune, diff, sql, mcp, ui):
    main.add_command(command)


@main.command()
@click.argument("pipeline", type=Target())
@set_option
@click.option(
    "--records",
    type=click.Path(dir_okay=False),
    help="Without a checkpoint on this machine: a file for why, watch and report.",
)
@click.option("--run-id", help="Local: the name under which sinks know the run; default: the pipeline's.")
@click.option("--runner", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--checkpoint", help="The folder from which the run can be resumed.")
@click.option(
    "--trigger",
    default="available_now",
    show_default=True,
    help="With a checkpoint, and on Spark: available_now, or an interval such as '10 seconds' or '5m'.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="With a checkpoint, and on Spark: close all windows at the end of the available input.",
)
@click.option(
    "--continue-as",
    metavar="NEW",
    help="For an older copy of a checkpoint: the id of the run that continues from it. Later rows are removed from "
    "sinks that support it, and reported for others.",
)
@click.option(
    "--shards",
    type=click.IntRange(1),
    help="Spark: parts of each keyed stage; default: the cores, or 1 for small input.",
)
@click.option("--state", type=click.Choice(["spark", "files"]), help="Spark: where a new run has its state.")
@click.option(
    "--telemetry",
    type=click.Choice(["opentelemetry", "openlineage"]),
    multiple=True,
    help="Export the run; the variables OTEL_... and OPENLINEAGE_... say where to. May be given several times.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve metrics for Prometheus at this port, on all addresses of the machine.",
)
@click.option("--quiet", is_flag=True, help="No progress on a terminal.")
@log_option
@click.option("--master", help="Spark: the master; default: local[*].")
@conf_option
def run(
    pipeline: Pipeline,
    records: str | None,
    run_id: str | None,
    runner: str,
    metrics_port: int | None,
    **options: Any,
) -> None:
    """Run PIPELINE and show what it did. PIPELINE is MODULE:PIPELINE, or a YAML file.

    Ctrl-C ends the run after the current batch, a second Ctrl-C at once; the exit code of a run without a checkpoint is
    then 130. SIGTERM ends a run with a checkpoint in the same way.
    """
    on_batch = {} if metrics_port is None else {"on_batch": _metrics(pipeline.name, metrics_port)}
    try:
        _show(plainly(lambda: pipeline.run(_runner(runner, records, run_id, options, **on_batch))))
    except Interrupted as interrupted:
        if interrupted.run.batches:
            _show(interrupted.run)
        sys.exit(_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _show(done: Run) -> None:
    console = Console()
    if done.batches:
        console.print(totals_table(done.batches), watermarks_table(list(done.batches)[-1:]))
        console.print(sinks_table(sink_rows(done)))
    else:
        console.print("no batch has run: there was no new input")
    for line in lost_rows(done):
        # Lines are not wrapped, since users copy paths from them.
        console.print(printable(line), style="bold yellow", highlight=False, markup=False, soft_wrap=True)
    for line in left_open(done):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


@main.command()
@click.argument("pipeline", type=Target())
@set_option
def explain(pipeline: Pipeline) -> None:
    """Print the plan of PIPELINE: stages, windowing, levels and Spark operators.

    PIPELINE is MODULE:PIPELINE, or a YAML file.
    """
    click.echo(plainly(pipeline.explain))


@main.command()
@click.argument("pipeline", type=Target())
@set_option
def check(pipeline: Pipeline) -> None:
    """Check PIPELINE without reading or writing data.

    PIPELINE is MODULE:PIPELINE, or a YAML file, whose errors have the line and the column.
    """
    plan = plainly(pipeline.plan)
    counts = {"source": plan.sources, "stage": plan.stages, "sink": plan.sinks}
    parts = ", ".join(f"{len(each)} {kind}{'s' * (len(each) != 1)}" for kind, each in counts.items())
    click.echo(printable(f"{plan.name}: {parts}"))


@main.command()
def schema() -> None:
    """Print the JSON schema of pipeline files, for editors."""
    from beamlike.spec.schema import PATH

    click.echo(PATH.read_text(encoding="utf-8"), nl=False)


@main.command()
@click.argument("run")
@click.option("--stage", help="Only this stage.")
@click.option("--key", help="Only the windows of this key; several key columns: 'eu, 7'.")
@click.option(
    "--window",
    help="Only this window: START/END, or a time in it, such as 2026-01-31T12:00Z; UTC without a zone.",
)
@trace_options
def why(
    run: str,
    stage: str | None,
    key: str | None,
    window: str | None,
    pane: tuple[str, str, str] | None,
    rows: bool,
    row: tuple[str, str] | None,
    pipeline: Pipeline | None,
    savepoint: tuple[str, ...],
    trust: bool,
) -> None:
    """Explain why a window has not fired: what it waits for, and what holds that.

    RUN is a file of records, a folder with one, or a checkpoint.

    With --pane and --rows, or with --row, show which rows made a pane, or what became of rows. For that, batches of the
    checkpoint RUN are played again with --pipeline.
    """
    if pane is not None or row is not None:
        show_trace(run, pipeline, pane, row, savepoint, trust)
        return
    if rows or pipeline is not None:
        raise click.UsageError("--rows and --pipeline are for --pane STAGE KEY WINDOW")
    from beamlike.observe.waiting.explain import why as explained
    from beamlike.records.history import History

    for sentence in plainly(lambda: explained(History.open(run), stage=stage, key=key, window=window)):
        click.echo(printable(sentence))
    click.echo(TROUBLESHOOTING, err=True)


@main.command()
@click.argument("run")
@click.option(
    "--max-age", type=DurationType(), help="The greatest accepted age of the current batch, such as 15m."
)
@click.option("--max-lag", type=DurationType(), help="The same, and the greatest accepted lag, such as 5m.")
def status(run: str, max_age: int | None, max_lag: int | None) -> None:
    """Report whether a run keeps up; exit with 1 if it does not.

    A run does not keep up if it failed or was killed. With --max-age, also if its current batch began longer ago than
    that; this is for probes of its life. With --max-lag, also if the watermark of a source or stage is further behind.
    A run that has read all its input keeps up, and so does one that has ended or was stopped.

    RUN is a file of records, a folder with one, or a checkpoint.
    """
    from beamlike.observe.status import Status
    from beamlike.records.history import History

    found = plainly(lambda: Status.of(History.open(run)))
    for line in found.lines():
        click.echo(printable(line))
    troubles = list(found.troubles(max_lag, max_age))
    for trouble in troubles:
        click.echo(printable(f"Trouble: {trouble}"), err=True)
    if troubles:
        click.echo(TROUBLESHOOTING, err=True)
    sys.exit(1 if troubles else 0)


@main.command()
@click.argument("pipeline", type=Target())
@set_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The file; by default, it is printed.")
def alerts(pipeline: Pipeline, output: str | None) -> None:
    """Write rules for Prometheus that alert when MODULE:PIPELINE misses one of its promises."""
    from beamlike.observe.completeness.alerts import alert_rules, write_alerts

    if output is None:
        click.echo(plainly(lambda: alert_rules(pipeline)), nl=False)
        return
    plainly(lambda: write_alerts(pipeline, output))
    click.echo(output)


@main.command()
@click.argument("run")
def watch(run: str) -> None:
    """Show a run in a live table until it ends or Ctrl-C is pressed.

    RUN is a file of records, a folder with one, or a checkpoint.
    """
    from beamlike.observe.watch import watch as show

    plainly(lambda: show(run))


@main.command()
@click.argument("run")
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="The page.",
)
def report(run: str, output: str) -> None:
    """Write a page about a run, in one file that works offline.

    RUN is a file of records, a folder with one, or a checkpoint.
    """
    from beamlike.records.history import History

    history = plainly(lambda: History.open(run))
    try:
        from beamlike.observe import write_report
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from None
    try:
        plainly(lambda: write_report(history, output))
    except OSError as error:
        raise click.ClickException(f"cannot write {output!r}: {error}") from None
    click.echo(output)


_OF_SPARK = {"shards": "--shards", "state": "--state", "master": "--master", "config": "--conf"}


def _metrics(pipeline: str, port: int) -> Any:
    """Returns the metrics of the pipeline, which a thread of this process serves at the port."""
    try:
        from beamlike.observe import PrometheusMetrics

        metrics = PrometheusMetrics(pipeline)
        from prometheus_client import start_http_server

        start_http_server(port, registry=metrics.registry)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"--metrics-port: {error}") from None
    except OSError as error:
        raise click.ClickException(f"--metrics-port {port}: {error.strerror}") from None
    return metrics


def _runner(
    name: str, records: str | None, run_id: str | None, options: dict[str, Any], **others: Any
) -> Any:
    options["telemetry"] = [*map(_telemetry, dict.fromkeys(options["telemetry"]))]
    given = {
        option: value
        for option, value in options.items()
        if click.get_current_context().get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE
    }
    if name == "local":
        if spark := [text for option, text in _OF_SPARK.items() if option in given]:
            raise click.UsageError(f"{', '.join(spark)}: for --runner spark only")
        given = {option: value for option, value in options.items() if option not in _OF_SPARK}
        return _made(LocalRunner, records=records, run_id=run_id, **given, **others)
    if run_id is not None:
        raise click.UsageError(
            "--run-id: for --runner local only; on Spark each checkpoint has an id of its own"
        )
    return _made(plainly(_spark_runner), records=records, **options, **others)


def _spark_runner() -> type[Any]:
    from beamlike.spark.runner import SparkRunner

    return SparkRunner


def _telemetry(name: str) -> Any:
    from beamlike import observe

    try:
        kind = {"opentelemetry": "OpenTelemetry", "openlineage": "OpenLineage"}[name]
        return getattr(observe, kind)()
    except Exception as error:  # a library reads its settings, and may raise anything
        raise click.ClickException(f"--telemetry {name}: {error}") from None


def _made(runner: Callable[..., Any], **options: Any) -> Any:
    try:
        return runner(**options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
