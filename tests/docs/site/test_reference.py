"""The reference has every public name once, and the site lists every command."""

from __future__ import annotations

import re
from functools import reduce
from types import ModuleType
from typing import Any

import pytest

import beamlike as bl
from beamlike.cli.main import main
from tests.docs.public_names import CLASSES, methods, public
from tests.docs.site.command_line import commands
from tests.docs.site.public_paths import REFERENCE, entries

GIVEN_AS_TEXT = (str, bl.Accumulation, bl.TimestampCombiner)
"""The kinds of constants that have no entry of their own; a page mentions them."""

EXPLAINED_BY_NARWHALS = {"bl.col", "bl.lit", "bl.when"}

NAMES = {
    **{
        name: thing
        for name, thing in public()
        if name.startswith("bl.") and not isinstance(thing, ModuleType)
    },
    **{f"bl.operators.{name}": getattr(bl.operators, name) for name in bl.operators.__all__},
}

HERE = {path: members for path, members in entries().items() if not path.startswith("beamlike.beam.")}
"""The entries of names that need no Apache Beam; tests/beamlike/beam/test_runner.py checks the others."""


def found(path: str) -> Any:
    """Returns the object that an entry describes."""
    return reduce(getattr, path.split(".")[1:], bl)


def is_mentioned(name: str) -> bool:
    """True if a page of the reference has the name in backquotes."""
    return any(f"`{name}`" in page.read_text() for page in REFERENCE.glob("*.md"))


def test_every_public_name_has_an_entry_or_is_mentioned() -> None:
    described = {id(found(path)) for path in HERE}
    missing = [
        name
        for name, thing in NAMES.items()
        if id(thing) not in described
        and not ((isinstance(thing, GIVEN_AS_TEXT) or name in EXPLAINED_BY_NARWHALS) and is_mentioned(name))
    ]
    assert missing == []


def test_no_object_has_two_entries() -> None:
    objects = [id(found(path)) for path in HERE]
    assert len(objects) == len(set(objects))


@pytest.mark.parametrize("owner", CLASSES)
def test_every_public_method_is_shown(owner: type) -> None:
    (shown,) = (members for path, members in HERE.items() if found(path) is owner)
    called_by_runners = {"datasets", "schema", "chunks", "step"} if owner is bl.TestStream else set()
    assert set(shown) == set(methods(owner)) - called_by_runners


@pytest.mark.parametrize("path", [path for path, members in HERE.items() if members])
def test_members_that_are_shown_exist(path: str) -> None:
    assert [name for name in HERE[path] if not hasattr(found(path), name)] == []


def test_every_command_and_option_is_listed() -> None:
    text = commands()
    assert re.findall(r"^## beamlike (\w+)$", text, re.M) == sorted(main.commands)
    for command in main.commands.values():
        for parameter in command.params:
            for option in filter(lambda name: name.startswith("--"), parameter.opts):
                assert f"{option}" in text, option
