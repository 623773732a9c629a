"""Finds the pipeline that a command line names, and sets its parameters."""

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
from beamlike.system.secrets import is_secret, without_secrets
from beamlike.system.texts import python_argument, shell_word


class Target(click.ParamType[Pipeline]):
    """An argument that names a pipeline.

    It is MODULE:PIPELINE, a `Pipeline` or a function that returns one and has its parameters from `--set`; or the path
    of a YAML file.
    """

    name = "module:pipeline"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pipeline:
        if ctx is not None:
            ctx.meta[_ARGUMENT] = str(value)
        if str(value).endswith((".yaml", ".yml")):
            return self._from_file(str(value), param, ctx)
        module_name, _, name = str(value).partition(":")
        if module_name.endswith(".py") or "/" in module_name:
            self.fail(f"{value!r}: {_no_path(module_name, name or 'PIPELINE')}", param, ctx)
        if not name or not module_name or module_name.startswith("."):
            self.fail(
                f"{value!r}: write MODULE:PIPELINE, such as examples.session_lengths:earliest, or a file such as "
                "pipeline.yaml",
                param,
                ctx,
            )
        # Makes modules in the current folder importable, as `python -m` does.
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            module = plainly(lambda: importlib.import_module(module_name))
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            self.fail(f"there is no module {error.name!r} here or installed", param, ctx)
        found = getattr(module, name, None)
        settings = settings_of(ctx) if ctx else ()
        if isinstance(found, Pipeline):
            if settings:
                self.fail(f"{name} is a pipeline and no function: it has nothing to set", param, ctx)
            _remember(ctx, value)
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
        names = [*arguments.signature.parameters]
        given = [_shown(name, value) for name, value in zip(names, arguments.args, strict=False)]
        given += [python_argument(name, _shown(name, value)) for name, value in arguments.kwargs.items()]
        _remember(ctx, f"{value}({', '.join(given)})")
        return made

    def _from_file(self, path: str, param: click.Parameter | None, ctx: click.Context | None) -> Pipeline:
        from beamlike.spec.files import from_yaml

        settings: dict[str, str] = {}
        for setting in ctx.meta.get(_SETTINGS, ()) if ctx else ():
            key, equals, text = setting.partition("=")
            if not equals or not key:
                self.fail(f"{setting!r}: write --set KEY=VALUE", param, ctx)
            if key in settings:
                self.fail(f"{key} is set twice", param, ctx)
            settings[key] = text
        made: Pipeline = plainly(lambda: from_yaml(path, **settings))
        given = [
            repr(path),
            *(python_argument(name, _shown(name, value)) for name, value in settings.items()),
        ]
        _remember(ctx, f"beamlike:from_yaml({', '.join(given)})")
        return made


def _shown(name: str, value: Any) -> str:
    """Returns the value of a parameter as Python code. A secret is read from the environment, and is in no file."""
    secret = isinstance(value, str) and (is_secret(name) or without_secrets(value) != value)
    return f"os.environ[{name.upper()!r}]" if secret else repr(value)


def _remember(ctx: click.Context | None, text: str) -> None:
    if ctx is not None:
        ctx.meta[TARGET] = text


def _no_path(path: str, name: str) -> str:
    """Describes how to name the module instead of its path: `jobs/clicks.py` is `jobs.clicks`."""
    folder, file = os.path.split(path.removesuffix(".py"))
    if os.path.isabs(folder) or ".." in folder.split("/"):
        return f"a module has no path; write {file}:{name}, in the folder {folder}"
    module = ".".join(part for part in (*folder.split("/"), file) if part not in ("", "."))
    return f"a module has no path; write {module}:{name}"


def _pipelines(module: ModuleType) -> list[str]:
    """Returns the names of pipelines, and of functions that are annotated to return one."""
    return [name for name, value in vars(module).items() if isinstance(value, Pipeline) or _makes(value)]


def _functions(module: ModuleType) -> list[str]:
    """Returns the names of the public functions of the module, each of which may return a pipeline."""
    own = [(name, value) for name, value in inspect.getmembers(module, inspect.isfunction)]
    return [name for name, value in own if value.__module__ == module.__name__ and not name.startswith("_")]


def _makes(candidate: object) -> bool:
    """True for a function that is annotated to return a pipeline."""
    if not callable(candidate) or isinstance(candidate, type):
        return False
    returns = getattr(candidate, "__annotations__", {}).get("return")
    return returns is Pipeline or str(returns).endswith("Pipeline")


_SETTINGS = "beamlike.cli.settings"
_ARGUMENT = "beamlike.cli.argument"
TARGET = "beamlike.cli.target"
"""The key under which the context of a command has the pipeline as an expression: `module:name`, with the call of a
function.
"""


def _keep(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta[_SETTINGS] = value


def settings_of(ctx: click.Context) -> tuple[str, ...]:
    """Returns the settings KEY=VALUE of the command line."""
    found: tuple[str, ...] = ctx.meta.get(_SETTINGS, ())
    return found


def as_arguments(ctx: click.Context) -> str:
    """Returns the pipeline and the settings of the command line for another command in a shell, without secrets."""
    settings = (f"--set {shell_word(without_secrets(setting))}" for setting in settings_of(ctx))
    return " ".join([shell_word(ctx.meta[_ARGUMENT]), *settings])


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    is_eager=True,  # Read before the argument PIPELINE, whose function needs the settings.
    expose_value=False,
    callback=_keep,
    help="A parameter of the function or file PIPELINE, as its annotation says; several times for several.",
)


trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Load pickled objects in state from elsewhere, which runs code that its writer chose.",
)
