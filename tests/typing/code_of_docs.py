"""The code that users read, in README, docs and docstrings, as modules for a type checker."""

from __future__ import annotations

import doctest
import re
import shutil
from collections.abc import Iterator
from textwrap import indent
from typing import Final

import beamlike as bl
from tests.docs.test_docstrings import PUBLIC, docstring
from tests.support.places import ROOT

FOLDER: Final = ROOT / "build/typing"
"""The modules; `pyrightconfig.json` beside this file includes them."""

_SKETCHES: Final = "# pyright: reportUndefinedVariable=false, reportMissingImports=false\n"
"""Some blocks of pages use names of the reader's. Blocks that are run have no such names, as the tests show."""

_BLOCK: Final = re.compile(r"^```python(?! (?:spark|beam|bytewax)$).*?\n(.*?)^```", re.M | re.S)
"""The code for beamlike; programs of other frameworks, whose names differ, are left out."""


def page(text: str) -> str:
    """Returns the code of a page, whose blocks share their names."""
    return "\n\n".join(_BLOCK.findall(text))


def example(text: str) -> str:
    """Returns the code of a docstring's examples that raise no error: errors are often about types."""
    found = doctest.DocTestParser().get_examples(text)
    return "".join(one.source for one in found if one.exc_msg is None)


def functions() -> Iterator[str]:
    """Yields a function for each docstring with examples; each begins with the examples of `bl.Collection`."""
    before = example(docstring(bl.Collection))
    for number, (name, thing) in enumerate(PUBLIC.items()):
        if code := example(docstring(thing)):
            yield f"def example_{number}() -> None:  # {name}\n{indent(before + code, '    ')}"


def write() -> None:
    """Writes all modules."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        if code := page(path.read_text()):
            name = "_".join(path.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            (FOLDER / f"{name}.py").write_text(_SKETCHES + code)
    (FOLDER / "docstrings.py").write_text("import beamlike as bl\n\n\n" + "\n\n".join(functions()))


if __name__ == "__main__":
    write()
