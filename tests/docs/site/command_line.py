"""The commands of `beamlike` as Markdown: their usage, their text and a table of their options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from beamlike.cli.main import main

MARKER = "<!-- the commands -->"


def commands() -> str:
    """Returns a section for each command, in alphabetical order."""
    # A command keeps the help option of its first context, so this one has the settings of the command line.
    group = click.Context(main, info_name="beamlike", **main.context_settings)
    listed = [(name, main.get_command(group, name)) for name in main.list_commands(group)]
    return "\n".join(
        line
        for name, command in listed
        if command and not command.hidden
        for line in _section(click.Context(command, info_name=name, parent=group))
    )


def _section(context: click.Context) -> Iterator[str]:
    command = context.command
    yield from (f"## beamlike {context.info_name}", "")
    yield from (
        "```text",
        f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}",
        "```",
        "",
    )
    yield from (inspect.cleandoc(command.help or ""), "")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        yield from ("| option | meaning |", "|---|---|")
    records = [option.get_help_record(context) for option in options]
    yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in filter(None, records))
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
