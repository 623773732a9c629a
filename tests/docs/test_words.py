"""Plain English: the rules of docs/style.md that a regular expression can hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

PACKAGES = ("windowing", "stages", "beamlike")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTING = {"style.md"}
"""Pages that show what not to write."""

ALLOWED: frozenset[str] = frozenset()
"""Faults that stay, as the tests print them; at most 20."""

CLAUSE = re.compile(
    r"(What|Whether|Who|Whose|Where|How|When|Which|As|Of|In|By|With|From|After|At|If|Unless)\b"
)
PRONOUN = re.compile(r"(That|Those|This|These|The same|Its?|They|Their|None|One|Both|Such|Same)\b")
ARTICLE = re.compile(r"(The|An?)\b")
DIALECT = re.compile(
    r"\b(but\s+for|lest|nobody|anybody|somebody|whoever|(is|are|was|were)\s+to\s+be|(has|have|had)\s+to\s+be"
    r"|had\s+better|what\s+(becomes|comes)\s+of|(is|are)\s+told\s+of)\b",
    re.IGNORECASE,
)

CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
"""Code and output on a page: fenced blocks, indented lines, words between backquotes."""


def dialect(text: str) -> Iterator[str]:
    """Returns the phrases of a text that docs/style.md replaces."""
    return (f"says {' '.join(found[0].split())!r}" for found in DIALECT.finditer(text))


def faults(docstring: str) -> Iterator[str]:
    """Yields the rules that a docstring breaks."""
    if CLAUSE.match(docstring):
        yield "begins with a clause"
    if PRONOUN.match(docstring):
        yield "begins with a pronoun"
    yield from dialect(docstring)


def is_function(node: ast.AST) -> bool:
    """True for a function or method that is no property, and so does something."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not any("property" in ast.unparse(one) for one in node.decorator_list)


def functions_described_as_things(module: Path) -> Iterator[str]:
    """Yields the names of functions whose docstring begins with an article instead of a verb."""
    for node in ast.walk(ast.parse(module.read_text())):
        if is_function(node) and ARTICLE.match(ast.get_docstring(node) or ""):  # type: ignore[arg-type]
            yield getattr(node, "name", "")


def docstrings(module: Path) -> Iterator[tuple[str, str]]:
    """Yields name and docstring of a module, and of its classes and functions at any depth."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", module.stem), text


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_keep_the_rules_of_style(package: str) -> None:
    found = [
        f"{module.relative_to(ROOT)} {name}: {fault}"
        for module in sorted((ROOT / package).rglob("*.py"))
        for name, docstring in docstrings(module)
        for fault in faults(docstring)
    ]
    assert [fault for fault in found if fault not in ALLOWED] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_of_functions_begin_with_a_verb(package: str) -> None:
    """Docstrings of expressions, such as `bl.count()`, name the value."""
    modules = [one for one in sorted((ROOT / package).rglob("*.py")) if one.parent.name != "expressions"]
    found = {str(one.relative_to(ROOT)): [*functions_described_as_things(one)] for one in modules}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_no_word_of_the_dialect(page: Path) -> None:
    if page.name not in QUOTING:
        found = [f"{page.name}: {fault}" for fault in dialect(CODE.sub("", page.read_text()))]
        assert [fault for fault in found if fault not in ALLOWED] == []


def test_few_faults_are_allowed() -> None:
    assert len(ALLOWED) <= 20


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("What comes of a batch.", ["begins with a clause", "says 'What comes of'"]),
        ("Whether it holds.", ["begins with a clause"]),
        ("Of both sides.", ["begins with a clause"]),
        ("The same, for late rows.", ["begins with a pronoun"]),
        ("Its rows.", ["begins with a pronoun"]),
        ("Removes the rows that are to\nbe removed.", ["says 'are to be'"]),
        ("Releases locks.\n\nA lock has to be held.", ["says 'has to be'"]),
        ("Reads the rows of a bucket.", []),
        ("Italics are no pronoun.", []),
    ],
)
def test_a_fault_is_found(docstring: str, expected: list[str]) -> None:
    assert list(faults(docstring)) == expected


def test_code_on_a_page_is_no_prose() -> None:
    page = "Is `but for` code?\n\n```python\nlest = 1\n```\n\n    nobody\n\nYes: nobody doubts it.\n"
    assert list(dialect(CODE.sub("", page))) == ["says 'nobody'"]
