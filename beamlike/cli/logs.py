"""The option `--log-format` of commands that run for long, and a command group whose errors have this format."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import Any

import click

from beamlike.system.json_logs import log_json, logs_json
from beamlike.system.secrets import without_secrets

_LOG = logging.getLogger("beamlike")


def _chosen(ctx: click.Context, param: click.Parameter, value: str) -> None:
    if value == "json":
        log_json()


# It is read before other options, so that their errors are logged in this format, too.
log_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    is_eager=True,
    expose_value=False,
    callback=_chosen,
    help="The form of the log on standard error; json: an object a line.",
)


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    print(without_secrets("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


class LoggingGroup(click.Group):
    """A group of commands that logs errors if the log is JSON, since a plain line would not be valid JSON. Tracebacks
    are printed without secrets, which a line of a pipeline may have. The help has the commands in `sections`, by title;
    others are under "More".
    """

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = [name for name in self.list_commands(ctx) if name not in {*chain(*self.sections.values())}]
        for title, names in {**self.sections, "More": left}.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            if commands:
                width = formatter.width - 6 - max(map(len, self.commands))
                with formatter.section(title):
                    formatter.write_dl(
                        [(name, command.get_short_help_str(width)) for name, command in commands],
                        col_max=max(map(len, self.commands)) + 2,
                    )

    def invoke(self, ctx: click.Context) -> Any:
        sys.excepthook = _print
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if not logs_json():
                raise
            _LOG.error("%s", error.format_message())
            ctx.exit(error.exit_code)
        except Exception as error:
            if isinstance(error, click.exceptions.Exit | click.Abort) or not logs_json():
                raise
            _LOG.exception("%s: %s", type(error).__name__, error)
            ctx.exit(1)
