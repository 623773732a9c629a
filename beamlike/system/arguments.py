"""Explains calls with wrong arguments: an unknown or renamed name, a missing argument, or too many."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, isfunction
from typing import Any, Final, TypeVar

from beamlike.errors import PlanError, WrongType, listed, nearest

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=type)

_OTHER: Final[Mapping[str, tuple[str, ...]]] = {
    "conf": ("config",),
    "options": ("config",),
    **dict.fromkeys(("checkpointLocation", "checkpoint_location", "checkpoint_dir"), ("checkpoint",)),
    **dict.fromkeys(("sep", "delim", "separator"), ("delimiter",)),
    **dict.fromkeys(("bootstrap_servers", "brokers", "bootstrap"), ("servers",)),
    **dict.fromkeys(("topics", "subscribe", "stream"), ("topic", "topics")),
    **dict.fromkeys(("time", "time_column", "ts", "timestamp_column", "event_time"), ("timestamp",)),
    **dict.fromkeys(("subset", "keys", "columns", "by"), ("on", "keys", "ids", "columns")),
    **dict.fromkeys(("lateness", "late", "allowedLateness"), ("allowed_lateness",)),
    **dict.fromkeys(("mode", "accumulation_mode"), ("accumulation", "mode")),
    **dict.fromkeys(("duration", "length", "window", "every", "width"), ("size", "bound", "gap")),
    **dict.fromkeys(("timeout", "inactivity"), ("gap",)),
    **dict.fromkeys(("hop", "step", "every", "interval"), ("slide", "step")),
    **dict.fromkeys(("early_firings", "early_trigger"), ("early",)),
    **dict.fromkeys(("late_firings", "late_trigger"), ("late",)),
    **dict.fromkeys(("delay", "max_out_of_orderness"), ("bound",)),
    **dict.fromkeys(("limit", "num_rows", "rows", "numRows"), ("n", "input_rows")),
    **dict.fromkeys(("output_schema", "outputType", "returnType", "dtype"), ("schema",)),
    **dict.fromkeys(("func", "fn", "f"), ("function",)),
    **dict.fromkeys(("column", "col", "field"), ("column", "on")),
    **dict.fromkeys(("table_name", "dbtable"), ("table",)),
    **dict.fromkeys(("con", "conn", "connection", "uri"), ("url",)),
    **dict.fromkeys(("file", "folder", "directory", "location", "filename"), ("path",)),
    **dict.fromkeys(("alias", "step_name", "label"), ("name",)),
    **dict.fromkeys(("spark", "spark_session"), ("session",)),
    **dict.fromkeys(("parallelism", "partitions", "num_partitions", "cores"), ("shards",)),
    **dict.fromkeys(("value", "default_value", "initial"), ("default",)),
}
"""Names of arguments in other libraries, with the names here of which a call may have one."""
_MARK: Final = "__answered__"
_RENAMED: Final[Mapping[tuple[str, str], str]] = {("join", "stamp"): "event_time"}
"""Arguments of a function that have another name since a version, by function and former name."""


def answered(function: _Function) -> _Function:
    """Returns the function, which raises `WrongType` for arguments that do not fit its parameters. Its signature, text
    and annotations stay.
    """

    if hasattr(function, _MARK):
        return function

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        __tracebackhide__ = True  # read by IPython
        try:
            return function(*positional, **named)
        except TypeError as error:
            # Arguments that fit are those of a call that has begun: the error is one of its own.
            reason = misfit(function, positional, named)
            if reason is None or isinstance(error, WrongType):
                raise
            raise WrongType(reason, step=_step(function, positional)) from None

    setattr(call, _MARK, True)
    return call  # type: ignore[return-value]


def answering(kind: _Kind) -> _Kind:
    """Explains wrong arguments of the public methods of a class, also of those that it inherits from its package."""
    package = kind.__module__.rpartition(".")[0]
    for name, method in inspect.getmembers(kind, isfunction):
        if not name.startswith("_") and method.__module__.startswith(package):
            setattr(kind, name, answered(method))
    return kind


def answering_all(module: dict[str, Any], names: Iterable[str]) -> None:
    """Explains wrong arguments of the functions and classes of these names in the namespace of a module."""
    for name in names:
        if name in module:
            module[name] = answered_name(module[name])


def answered_name(found: Any) -> Any:
    """Returns a public function, class or value, and explains the wrong arguments of its calls."""
    if isinstance(found, type):
        explain_new(found)
    if not isfunction(found):
        return found
    made = answered(found)
    # Also in its module, where pickles look for it.
    setattr(sys.modules[found.__module__], found.__name__, made)
    return made


def explain_new(kind: type[Any]) -> None:
    """Explains wrong arguments of the constructor of a class, and names the class in errors about their values."""
    own = vars(kind).get("__init__")
    if not isfunction(own) or hasattr(own, "__wrapped__") or issubclass(kind, BaseException):
        return

    @wraps(own)
    def init(self: Any, *positional: Any, **named: Any) -> None:
        __tracebackhide__ = True  # read by IPython
        try:
            own(self, *positional, **named)
        except PlanError:
            raise
        except (TypeError, ValueError) as error:
            name = type(self).__name__
            told = misfit(own, (self, *positional), named, name, self) or str(error)
            told = told if told.startswith(name) else f"{name}: {told}"
            raise (WrongType if isinstance(error, TypeError) else PlanError)(told) from None

    kind.__init__ = init


def misfit(
    function: Callable[..., Any],
    positional: Sequence[Any],
    named: Mapping[str, Any],
    what: str = "",
    owner: object = None,
) -> str | None:
    """Describes how arguments do not fit a function, and what to write. None if they fit."""
    parameters = dict(inspect.signature(function).parameters)
    bound = next(iter(parameters), "") in ("self", "cls")
    if bound:
        parameters.pop(next(iter(parameters)))
    given = len(positional) - bound
    name = what or function.__name__
    by_place = [
        one for one in parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    kinds = {one.kind for one in parameters.values()}
    described = type(owner) if what else function
    example = _example(described, name)
    if Parameter.VAR_KEYWORD not in kinds:
        for argument in named:
            if argument not in parameters:
                instead = argument_instead(name, argument, parameters, described.__doc__ or "")
                return f"{name} has no argument {argument!r}{instead}{example}"
    if given > len(by_place) and Parameter.VAR_POSITIONAL not in kinds:
        by_name = [f"{one.name}=" for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
        hint = f"; give by name: {listed(by_name)}" if by_name else ""
        count = f"{len(by_place)} argument{'s' * (len(by_place) != 1)} by place, and this has {given}"
        return f"{name} takes {count}{hint}{example}"
    twice = [
        one.name for one in by_place[:given] if one.name in named and one.kind is not one.POSITIONAL_ONLY
    ]
    if twice:
        return f"{name} has the argument {twice[0]!r} twice: by its place and by its name{example}"
    missing = [
        one
        for one in parameters.values()
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and one.name not in named
        and one not in by_place[:given]
    ]
    if missing:
        return f"{name} needs {' and '.join(f'{one.name}=' for one in missing)}{example}"
    return None


def argument_instead(function: str, argument: str, parameters: Mapping[str, Parameter], doc: str = "") -> str:
    """Returns a clause with the argument that a call may mean by an unknown name, or with those that there are."""
    known = [
        name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    # Classes of sources have further fields, which runs set.
    known = [name for name in known if f"{name}:" in doc] or known
    if renamed := _RENAMED.get((function, argument)):
        return f"; it is now called {renamed}="
    for name in _OTHER.get(argument, ()):
        if name in known:
            return f"; use {name}="
    return nearest(argument, known) or (f"; it has {listed(f'{name}=' for name in known)}" if known else "")


def _example(of: Any, name: str) -> str:
    """Returns a call from the examples of a docstring, as a clause; empty if it has none."""
    lines = re.findall(r"^\s*(?:>>>|\.\.\.) (.*)$", of.__doc__ or "", re.MULTILINE)
    for line in lines:
        # A call without arguments would not help.
        if found := re.search(rf"(?:\w+\.)*\b{re.escape(name)}\((?!\))", line):
            depth = 0
            for at in range(found.end() - 1, len(line)):
                depth += (line[at] in "([{") - (line[at] in ")]}")
                if depth == 0:
                    return f"; write for example {line[found.start() : at + 1].replace('nw.', 'bl.')}"
    return ""


def _step(function: Callable[..., Any], positional: Sequence[Any]) -> str | None:
    """Returns the step of a method of a collection, which has a name and a node; None for others."""
    if not positional or not hasattr(type(positional[0]), "node"):
        return None
    return f"{positional[0].node.name}.{function.__name__}"
