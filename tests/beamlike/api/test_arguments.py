"""Calls of the whole public interface with arguments that it does not have: each is answered, none by Python alone."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.api.cogroup import Cogroup
from beamlike.api.grouped import Grouped
from beamlike.errors import WrongType

OWN = (bl.Collection, bl.Pipeline, Grouped, Cogroup)


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the public functions and classes, and the methods that declare and run."""
    for name in bl.__all__:
        thing = getattr(bl, name)
        is_error = isinstance(thing, type) and issubclass(thing, BaseException)
        if callable(thing) and not is_error and "__init__" in dir(thing) and _declared(thing):
            yield name, thing
    for room in (bl.observe, bl.savepoint, bl.testing):
        for name in getattr(room, "__all__", ("save", "restore")):
            if inspect.isfunction(thing := getattr(room, name)):
                yield f"{room.__name__.rpartition('.')[2]}.{name}", thing
    for kind in OWN:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and method.__module__.startswith("beamlike.api"):
                yield f"{kind.__name__}.{name}", method


def _declared(thing: Any) -> bool:
    """True if the call has parameters of its own: not for base classes, whose constructor is Python's."""
    return inspect.isfunction(thing) or "__init__" in vars(thing)


PUBLIC = dict(public())


def parameters(thing: Callable[..., Any]) -> dict[str, Parameter]:
    return {name: one for name, one in inspect.signature(thing).parameters.items() if name != "self"}


def owner(name: str) -> list[Any]:
    """Returns the object of a method, or nothing for a function or class."""
    if "." not in name or name.partition(".")[0] not in {kind.__name__ for kind in OWN}:
        return []
    source, bound = bl.Rows([{"user": "ada", "at": 1}]), bl.MonotonousTimestamps()
    plays = bl.Pipeline("p").read("plays", source, timestamp="at", timestamp_unit="s", watermark=bound)
    return [
        {
            "Collection": plays,
            "Pipeline": plays.pipeline,
            "Grouped": plays.group_by("user"),
            "Cogroup": bl.cogroup(one=plays, other=plays),
        }[name.partition(".")[0]]
    ]


def kinds(name: str) -> set[Any]:
    return {one.kind for one in parameters(PUBLIC[name]).values()}


@pytest.mark.parametrize("name", [name for name in PUBLIC if Parameter.VAR_KEYWORD not in kinds(name)])
def test_an_unknown_argument_is_named(name: str) -> None:
    with pytest.raises(WrongType) as caught:
        PUBLIC[name](*owner(name), nonsense_=1)
    text = str(caught.value)
    assert f"{name.rpartition('.')[2]} has no argument 'nonsense_'" in text
    known = [one for one, given in parameters(PUBLIC[name]).items() if given.kind is not given.VAR_POSITIONAL]
    assert not known or any(f"{one}=" in text for one in known) or "did you mean" in text


NEEDED = {
    name: [
        one.name
        for one in parameters(thing).values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    for name, thing in PUBLIC.items()
}


@pytest.mark.parametrize("name", [name for name, needed in NEEDED.items() if needed])
def test_missing_arguments_are_named(name: str) -> None:
    with pytest.raises(WrongType) as caught:
        PUBLIC[name](*owner(name))
    assert all(f"{one}=" in str(caught.value) for one in NEEDED[name])


@pytest.mark.parametrize("name", [name for name in PUBLIC if Parameter.VAR_POSITIONAL not in kinds(name)])
def test_too_many_arguments_are_counted(name: str) -> None:
    with pytest.raises(WrongType, match=r"by place, and this has 40"):
        PUBLIC[name](*owner(name), *range(40))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_signature_is_that_of_the_declaration(name: str) -> None:
    # Tools for development read it, and type checkers read the source.
    thing = PUBLIC[name]
    assert "positional" not in parameters(thing)
    assert not inspect.isfunction(thing) or thing.__doc__ == inspect.unwrap(thing).__doc__


@pytest.mark.parametrize(
    "name", [name for name, one in PUBLIC.items() if inspect.isfunction(one) and "." not in name]
)
def test_a_function_is_pickled_by_its_name(name: str) -> None:
    assert pickle.loads(pickle.dumps(PUBLIC[name])) is PUBLIC[name]


def test_errors_inside_of_a_call_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fails(frame: Any, batch: int) -> None:
        raise TypeError("of the user")

    plays = bl.Pipeline("p").read("plays", bl.Rows([{"user": "ada"}]))
    plays.write("out", bl.Callback(fails))
    with pytest.raises(bl.SinkError, match="of the user"):
        plays.pipeline.run(bl.LocalRunner(quiet=True))
