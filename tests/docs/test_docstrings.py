"""Every public name has a docstring with an example, which is run here."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

import beamlike as bl
from tests.docs.public_names import public

NO_EXAMPLE = {
    # narwhals explains these.
    "bl.col",
    "bl.lit",
    "bl.when",
    # Their names are explained one by one.
    "bl.errors",
    "bl.observe",
    "bl.operators",
    "bl.savepoint",
    "bl.testing",
    # An operator needs forty lines; see docs/operators.md.
    "bl.CustomOperator",
    "Collection.apply",
    # Only a cluster, or another run, raises these.
    "bl.RunError",
    "bl.CheckpointError",
    "bl.errors.DataLoss",
    "bl.errors.RunError",
    "bl.errors.SourceError",
    "bl.errors.SinkInUse",
    "bl.errors.CheckpointError",
    "bl.errors.RecordsInUse",
    # Runners call these.
    "TestStream.chunks",
    "TestStream.datasets",
    "TestStream.schema",
    "TestStream.step",
}

PLAYS = "Example, with the `plays` of"
"""The beginning of an example that continues the example of `bl.Collection`."""


PUBLIC = dict(public())
WITH_EXAMPLE = [name for name in PUBLIC if name not in NO_EXAMPLE]


def docstring(thing: Any) -> str:
    """Returns the docstring of an object; for a value, such as `bl.LATEST`, that of its class."""
    kinds = type | FunctionType | MethodType | ModuleType
    return inspect.getdoc(thing if isinstance(thing, kinds) else type(thing)) or ""


def run(name: str, text: str, names: dict[str, Any]) -> str:
    """Runs the examples of a docstring and returns their failures; adds the names that they define to `names`."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append, clear_globs=False)
    names |= test.globs
    return "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_explained(name: str) -> None:
    text = docstring(PUBLIC[name])
    assert text, f"{name} needs a docstring: what it takes, gives and raises, with units"
    has_example = bool(doctest.DocTestParser().get_examples(text))
    assert has_example or name in NO_EXAMPLE, f"{name} needs an example in its docstring: `>>> ...`"


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_examples_give_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, names = docstring(PUBLIC[name]), {"bl": bl}
    if PLAYS in text:
        assert not run("bl.Collection", docstring(bl.Collection), names)
    assert not (wrong := run(name, text, names)), wrong


def test_no_name_is_exempt_that_need_not_be() -> None:
    assert set(PUBLIC) >= NO_EXAMPLE
