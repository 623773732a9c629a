"""The commands that play batches of earlier runs again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from beamlike.api.pipeline import Pipeline
from beamlike.cli.plainly import plainly
from beamlike.cli.target import TARGET, Target, set_option, trust_option
from beamlike.errors import listed
from beamlike.system.printable import printable

_KEY = click.option(
    "--key",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="A key, such as user=ada; several times for several columns.",
)
_SAVEPOINT = click.option(
    "--savepoint",
    multiple=True,
    metavar="FOLDER",
    help="A savepoint of the run, or a folder with some, from which the replay may begin.",
)
_MASTER = click.option(
    "--master", help="For a run on Spark: the master that reads its state; default: local[*]."
)


def key_of(given: tuple[str, ...], option: str = "--key") -> dict[str, str]:
    """Converts options COLUMN=VALUE to a dict. Raises `UsageError`, which names the option, for another form."""
    for text in given:
        if "=" not in text:
            raise click.UsageError(f"{option} {text!r}: write COLUMN=VALUE, such as user=ada")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def batches_of(text: str) -> tuple[int, int]:
    """Converts 7 or 3..7 to the first and the last batch. Raises `UsageError` for another text."""
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text.strip())
    if found is None:
        raise click.UsageError(f"--batches {text!r}: write a number, or FIRST..LAST, such as 1200..1204")
    return int(found[1]), int(found[2] or found[1])


@click.command()
@click.argument("checkpoint")
@click.argument("pipeline", type=Target())
@set_option
@click.option(
    "--batch", type=click.IntRange(0), help="The number of the batch; default: the last one that began."
)
@click.option(
    "--before", metavar="STAGE", help="Stop before this stage, and show its arrivals and its state."
)
@click.option("--after", metavar="STAGE", help="Stop after this stage, and show its panes and its state.")
@click.option(
    "--step", is_flag=True, help="Wait for a key before each stage, and show its arrivals and its panes."
)
@_KEY
@_SAVEPOINT
@trust_option
@_MASTER
def replay(
    checkpoint: str,
    pipeline: Pipeline,
    batch: int | None,
    before: str | None,
    after: str | None,
    step: bool,
    key: tuple[str, ...],
    savepoint: tuple[str, ...],
    trust: bool,
    master: str | None,
) -> None:
    """Play a batch of the run of CHECKPOINT again, with MODULE:PIPELINE, in this process.

    CHECKPOINT may also be a file of `beamlike record`. Nothing is written to the sinks. The exit code is 1 if the batch
    differs from what the run did.
    """
    if (before is not None) + (after is not None) + step > 1:
        raise click.UsageError("--before, --after and --step: give one of them")
    from beamlike.replaying.replay import replay as played

    found = plainly(
        lambda: played(checkpoint, pipeline, batch=batch, savepoint=savepoint, trust=trust, master=master)
    )
    stop, wanted = before or after, key_of(key)
    if stop is not None:
        plainly(lambda: found.go(before=before, after=after))
        _say(plainly(lambda: [*_stopped(found, stop, wanted, arrived=before is not None)]))
        return
    having = _stages_with(found, wanted) if wanted else []
    if step:
        _step(found, wanted)
    _say(plainly(lambda: [*found.lines(), *_states(found, having, wanted)]))
    sys.exit(1 if found.comparison.differences else 0)


def _step(found: Any, key: dict[str, str]) -> None:
    for name in found.left:
        _say(plainly(lambda: [*_rows(f"before stage {name}", found.arrivals(name), key)]))  # noqa: B023
        click.pause()
        plainly(found.step)
        _say(plainly(lambda: [*_rows(f"panes of stage {name}", found.rows(name), key)]))  # noqa: B023


def _stopped(found: Any, stage: str, key: dict[str, str], *, arrived: bool) -> Iterator[str]:
    state = found.state(stage, key)
    yield repr(found)
    if arrived:
        yield from _rows(f"arrivals at stage {stage}", found.arrivals(stage), key)
    else:
        yield from _rows(f"panes of stage {stage}", found.rows(stage), key)
    yield f"state of stage {stage}:"
    yield _table(state)


def _rows(title: str, rows: Any, key: dict[str, str]) -> Iterator[str]:
    """Yields the rows of the key below a title, which says so if they are those of all keys."""
    from beamlike.replaying.chunks import rows_of_key

    missing = [name for name in key if name not in rows.columns]
    if missing and rows.width:
        title = f"{title}, of all keys, as they have no column {listed(map(repr, missing))}"
    yield f"{title}:"
    yield _table(rows if missing else rows_of_key(rows, key))


def _stages_with(found: Any, key: dict[str, str]) -> list[str]:
    """Returns the stages that have state by these columns. Raises `UsageError` if there are none."""
    stages = found.plan.stages.values()
    keys = {one.name: one.stage.operator.tables[0].table.keys for one in stages if one.stage.operator.tables}
    having = [name for name, columns in keys.items() if {*key} <= {*columns}]
    if not having:
        known = sorted({column for columns in keys.values() for column in columns})
        raise click.UsageError(
            f"no stage has the key {', '.join(key)}; the keys of stages are {listed(known)}"
        )
    return having


def _states(found: Any, stages: list[str], key: dict[str, str]) -> Iterator[str]:
    for name in stages:
        yield f"state of stage {name} after the batch:"
        yield _table(found.state(name, key))


def _table(rows: Any) -> str:
    """Formats a frame with all of its columns."""
    import polars as pl

    with pl.Config(
        tbl_cols=-1, tbl_width_chars=200, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True
    ):
        return str(rows)


def _say(lines: Any) -> None:
    for line in lines:
        click.echo(printable(line, keep="\n\t"))


@click.command()
@click.argument("checkpoint")
@click.argument("pipeline", type=Target())
@set_option
@click.option("--batches", required=True, metavar="FIRST..LAST", help="The batches, such as 1200..1204.")
@_KEY
@click.option("--into", required=True, type=click.Path(dir_okay=False), help="The new file.")
@click.option("--as-test", is_flag=True, help="Write a test for pytest instead, with test streams.")
@_SAVEPOINT
@trust_option
@_MASTER
@click.pass_context
def record(
    ctx: click.Context,
    checkpoint: str,
    pipeline: Pipeline,
    batches: str,
    key: tuple[str, ...],
    into: str,
    as_test: bool,
    savepoint: tuple[str, ...],
    trust: bool,
    master: str | None,
) -> None:
    """Write batches of the run of CHECKPOINT into one file, which `beamlike replay` plays on any machine.

    With --key, only the rows of that key are in it, where the stages of MODULE:PIPELINE allow it.
    """
    from beamlike.replaying.record import record as recorded

    first, last = batches_of(batches)
    found = plainly(
        lambda: recorded(
            checkpoint,
            pipeline,
            None if as_test else into,
            batches=(first, last),
            key=key_of(key),
            savepoint=savepoint,
            trust=trust,
            master=master,
        )
    )
    if as_test:
        _write_test(found, pipeline, ctx, into)
    _say(found.notes)
    click.echo(into)


def _write_test(found: Any, pipeline: Pipeline, ctx: click.Context, into: str) -> None:
    from beamlike.replaying.as_test import as_test

    text = plainly(lambda: as_test(found, pipeline, ctx.meta[TARGET]))
    try:
        with open(into, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {into!r}: {error}") from None


_TRACE = (
    click.option(
        "--pane",
        nargs=3,
        metavar="STAGE KEY WINDOW",
        help="With --rows: a window of a stage; the key as tables show it, '' for a stage without keys.",
    ),
    click.option("--rows", is_flag=True, help="With --pane: which rows, files and offsets made it."),
    click.option(
        "--row",
        nargs=2,
        metavar="SOURCE COLUMN=VALUE[,...]",
        help="What became of the rows with these values.",
    ),
    click.option(
        "--pipeline", type=Target(), help="For --rows and --row: the pipeline of the run, MODULE:PIPELINE."
    ),
    set_option,
    _SAVEPOINT,
    trust_option,
)


def trace_options(command: Any) -> Any:
    """Adds the options for traces of panes and rows to a command."""
    for option in reversed(_TRACE):
        command = option(command)
    return command


def show_trace(
    run: str,
    pipeline: Pipeline | None,
    pane: tuple[str, str, str] | None,
    row: tuple[str, str] | None,
    savepoint: tuple[str, ...],
    trust: bool,
) -> None:
    """Shows which rows made a pane, or what became of rows."""
    if pipeline is None:
        raise click.UsageError("--pane and --row need --pipeline MODULE:PIPELINE, which is played again")
    from beamlike.replaying.tracing import trace_pane, trace_row

    if pane is not None:
        stage, key, window = pane
        _say(
            plainly(
                lambda: trace_pane(
                    run,
                    pipeline,
                    stage,
                    key=key or None,
                    window=window or None,
                    savepoint=savepoint,
                    trust=trust,
                )
            ).lines()
        )
    if row is not None:
        source, values = row
        wanted = key_of(tuple(values.split(",")), f"--row {source}")
        _say(plainly(lambda: trace_row(run, pipeline, source, wanted, savepoint=savepoint, trust=trust)))
