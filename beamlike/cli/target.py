"""The pipeline that a command line names, and the parameters that it sets."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from types import ModuleType
from typing import Any

import click

from beamlike.api.pipeline import Pipeline
from beamlike.cli.plainly import plainly
from beamlike.cli.settings import SettingError, bound
from beamlike.errors import listed, nearest


class Target(click.ParamType[Pipeline]):
    """MODULE:PIPELINE; PIPELINE is a Pipeline, or a function that returns one, with parameters for `--set`."""

    name = "module:pipeline"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pipeline:
        module_name, _, name = str(value).partition(":")
        if module_name.endswith(".py") or "/" in module_name:
            self.fail(f"{value!r}: {_no_path(module_name, name or 'PIPELINE')}", param, ctx)
        if not name or not module_name or module_name.startswith("."):
            self.fail(
                f"{value!r}: write MODULE:PIPELINE, such as examples.session_lengths:earliest", param, ctx
            )
        # As `python -m` does: modules in the current folder are found.
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            module = plainly(lambda: importlib.import_module(module_name))
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            self.fail(f"there is no module {error.name!r} here or installed", param, ctx)
        found = getattr(module, name, None)
        settings = ctx.meta.get(_SETTINGS, ()) if ctx else ()
        if isinstance(found, Pipeline):
            if settings:
                self.fail(f"{name} is a pipeline and no function: it has nothing to set", param, ctx)
            return found
        if not callable(found) or isinstance(found, type):
            names = _pipelines(module) or _functions(module)
            hint = nearest(name, names)
            self.fail(f"{module_name} has no pipeline {name!r}; it has {listed(names)}{hint}", param, ctx)
        try:
            arguments = bound(found, settings)
        except SettingError as error:
            self.fail(str(error), param, ctx)
        made = plainly(lambda: found(*arguments.args, **arguments.kwargs))
        if not isinstance(made, Pipeline):
            self.fail(f"{name} makes no pipeline, but {made!r}", param, ctx)
        return made


def _no_path(path: str, name: str) -> str:
    """The remedy for a path in place of a module: `jobs/clicks.py` is `jobs.clicks`."""
    folder, file = os.path.split(path.removesuffix(".py"))
    if os.path.isabs(folder) or ".." in folder.split("/"):
        return f"a module has no path; write {file}:{name}, in the folder {folder}"
    module = ".".join(part for part in (*folder.split("/"), file) if part not in ("", "."))
    return f"a module has no path; write {module}:{name}"


def _pipelines(module: ModuleType) -> list[str]:
    """The names of pipelines, and of functions annotated to return one."""
    return [name for name, value in vars(module).items() if isinstance(value, Pipeline) or _makes(value)]


def _functions(module: ModuleType) -> list[str]:
    """The functions of the module, any of which may return a pipeline."""
    own = [(name, value) for name, value in inspect.getmembers(module, inspect.isfunction)]
    return [name for name, value in own if value.__module__ == module.__name__ and not name.startswith("_")]


def _makes(candidate: object) -> bool:
    """True for a function that is annotated to return a pipeline."""
    if not callable(candidate) or isinstance(candidate, type):
        return False
    returns = getattr(candidate, "__annotations__", {}).get("return")
    return returns is Pipeline or str(returns).endswith("Pipeline")


_SETTINGS = "beamlike.cli.settings"


def _keep(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta[_SETTINGS] = value


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    is_eager=True,  # before the pipeline is made
    expose_value=False,
    callback=_keep,
    help="A parameter of the function PIPELINE, as its annotation says; several times for several.",
)
