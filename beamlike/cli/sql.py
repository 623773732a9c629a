"""The command `beamlike sql`: a prompt over files, such as those that a run has written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from beamlike.cli.plainly import plainly
from beamlike.errors import PlanError, nearest
from beamlike.system.printable import printable

if TYPE_CHECKING:
    import polars as pl

_HELP: Final = "end a query with ;  \\d lists the tables  \\q or Ctrl-D ends"
_TIMES: Final = ("at", "event_time", "time", "timestamp", "ts")
"""The names of columns that are the event time of a table if no other one is given."""


def _tables(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).stem, text
        if not name.isidentifier():
            raise click.BadParameter(f"{text!r}: write NAME=PATH, such as plays={path}", ctx, param)
        if name in found:
            raise click.BadParameter(f"two tables are called {name!r}; write NAME=PATH", ctx, param)
        found[name] = Path(path)
    return found


@click.command()
@click.argument("tables", nargs=-1, metavar="[NAME=]PATH...", required=True, callback=_tables)
@click.option("-e", "--execute", multiple=True, metavar="QUERY", help="Run this query, and no prompt.")
@click.option("--time", metavar="COLUMN", help=f"The event time of the tables; default: {', '.join(_TIMES)}.")
@click.option(
    "--unit", type=click.Choice(["s", "ms", "us", "ns"]), help="The unit of times that are numbers."
)
def sql(tables: dict[str, Path], execute: tuple[str, ...], time: str | None, unit: str | None) -> None:
    """Ask questions in SQL of files: Parquet, CSV and JSON lines, or folders with some, such as those of a sink.

    The queries are those of bl.sql, with windows, joins and top n. All rows are read in one batch, in order, and none
    is late. A table without a column of event times has the time of the query.
    """
    frames = {name: plainly(partial(_read, path)) for name, path in tables.items()}
    columns = sorted({column for frame in frames.values() for column in frame.columns})
    if time is not None and time not in columns:
        raise click.UsageError(f"--time: no table has a column {time!r}{nearest(time, columns)}")
    ask = _Asker(frames, time, unit)
    if execute:
        for query in execute:
            click.echo(plainly(partial(ask, query)))
        return
    refused = False
    for query in _queries(ask):
        try:
            click.echo(ask(query))
        except PlanError as error:
            refused = True
            click.echo(printable(f"Error: {error}", keep="\n"), err=True)
    if refused and not sys.stdin.isatty():
        sys.exit(1)


class _Asker:
    """Answers queries over frames."""

    def __init__(self, frames: Mapping[str, pl.DataFrame], time: str | None, unit: str | None) -> None:
        self.frames, self.time, self.unit = frames, time, unit

    def __call__(self, query: str) -> str:
        """Returns the rows of a query as a table. Raises `PlanError` if it cannot be declared."""
        import polars as pl

        from beamlike.api.pipeline import Pipeline
        from beamlike.spec.sql import sql as declared
        from windowing.windows import GlobalWindows

        p = Pipeline("sql")
        found = declared(query, **{name: self._table(p, name) for name in self.frames})
        windows = [] if isinstance(found.windowing.windows, GlobalWindows) else ["window_start", "window_end"]
        rows = found.collect().select(*(name for name in windows if name not in found.schema), *found.schema)
        options: dict[str, Any] = {"tbl_hide_dataframe_shape": True, "tbl_hide_column_data_types": True}
        with pl.Config(tbl_cols=-1, tbl_rows=50, tbl_width_chars=200, fmt_str_lengths=60, **options):
            return f"{printable(str(rows), keep=chr(10))}\n{len(rows):,} row{'' if len(rows) == 1 else 's'}"

    def _table(self, pipeline: Any, name: str) -> Any:
        from beamlike.io.memory import Rows
        from stages.strategies.base import IngressTimestamps, MonotonousTimestamps

        frame = self.frames[name]
        if (time := self._time(frame)) is None:
            return pipeline.read(name, Rows(frame), watermark=IngressTimestamps())
        options = {
            "timestamp": time,
            "timestamp_unit": self.unit if frame.schema[time].is_numeric() else None,
        }
        return pipeline.read(name, Rows(frame), watermark=MonotonousTimestamps(), **options)

    def _time(self, frame: pl.DataFrame) -> str | None:
        if self.time is not None:
            return self.time if self.time in frame.columns else None
        usable = (name for name in _TIMES if name in frame.columns)
        return next((name for name in usable if self.unit or not frame.schema[name].is_numeric()), None)

    def described(self) -> Iterator[str]:
        """Yields a line for each table, with its columns."""
        for name, frame in self.frames.items():
            columns = ", ".join(f"{column} {dtype}" for column, dtype in frame.schema.items())
            yield f"{name}: {len(frame):,} rows; {columns}; event time {self._time(frame) or 'of the query'}"


def _queries(ask: _Asker) -> Iterator[str]:
    """Yields the queries that a user types, or those of a script that is piped in."""
    typed = sys.stdin.isatty()
    if typed:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  editing and history
        click.echo(_HELP)
        for line in ask.described():
            click.echo(printable(line))
    text = ""
    while True:
        try:
            line = input(("sql> " if not text else "...> ") if typed else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            text = ""
            click.echo()
            continue
        command = line.strip()
        if command in ("\\q", "\\d"):
            if command == "\\q":
                return
            for one in ask.described():
                click.echo(printable(one))
            continue
        text += line + "\n"
        while ";" in text:
            query, _, text = text.partition(";")
            text = text.lstrip()
            yield query
    if text.strip():
        yield text


def _read(path: Path) -> pl.DataFrame:
    """Reads a file, or the files of a folder, in order of their names. Hidden files are left out."""
    from beamlike.io.files.written import files_in, read_file

    files = [path] if path.is_file() else files_in(path)
    if not files:
        raise FileNotFoundError(f"there is no file or folder with files at {path}")
    import polars as pl

    frames = [read_file(one) for one in files]
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise PlanError(f"the files in {path} do not fit together: {error}") from None
