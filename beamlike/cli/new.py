"""The command `beamlike new`: a project with a pipeline, a test and all that is around them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Final

import click

from beamlike.runtime.run.unfinished import unfinished

_ENDING: Final = ".in"
"""The ending of the template's files, so that no tool mistakes them for files of this package."""


class _Name(click.ParamType[str]):
    """The name of a project, whose package is importable and hides no other."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        package = _package(value)
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", value) or keyword.iskeyword(package):
            self.fail(f"{value!r}: write letters, digits, '-' and '_', such as play-counts", param, ctx)
        if find_spec(package) is not None:
            self.fail(
                f"{value!r}: its package {package!r} would hide the installed one of that name", param, ctx
            )
        return value


@click.command()
@click.argument("name", type=_Name())
def new(name: str) -> None:
    """Make the folder NAME with a new project: a pipeline, its test, Makefile, CI and Dockerfile."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{name!r} exists and is not an empty folder")
    with unfinished(name) as made:
        for path, text in _project(name):
            target = Path(made) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            click.echo(folder / path)
    click.echo(f"\nnext: cd {name} && make test && make run")


def _package(name: str) -> str:
    return name.replace("-", "_").lower()


def _project(name: str) -> Iterator[tuple[PurePath, str]]:
    """Yields the path and the text of each file of a project."""
    for path, template in _templates(files("beamlike.cli") / "template", PurePath()):
        text = template.read_text(encoding="utf-8").replace("PROJECT", _package(name)).replace("NAME", name)
        yield PurePath(str(path).replace("PROJECT", _package(name)).removesuffix(_ENDING)), text


def _templates(folder: Traversable, path: PurePath) -> Iterator[tuple[PurePath, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, path / entry.name)
        elif entry.name.endswith(_ENDING):
            yield path / entry.name, entry
