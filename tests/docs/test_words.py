"""Plain English: the rules of docs/style.md that a regular expression can hold."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.places import ROOT

FOLDERS = ("windowing", "stages", "beamlike", "tests", "benchmarks", "examples")
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

PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block of Python on a page."""


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
    """True for a function or method whose docstring says what it does.

    Properties and fixtures are values, and the name of a test is its claim.
    """
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("test_"):
        return False
    return not any(re.search("property|fixture", ast.unparse(one)) for one in node.decorator_list)


def functions_described_as_things(code: str) -> Iterator[str]:
    """Yields the names of functions whose docstring begins with an article instead of a verb."""
    for node in ast.walk(ast.parse(code)):
        if is_function(node) and ARTICLE.match(ast.get_docstring(node) or ""):  # type: ignore[arg-type]
            yield getattr(node, "name", "")


def docstrings(code: str) -> Iterator[tuple[str, str]]:
    """Yields name and docstring of a module, and of its classes, functions and constants at any depth."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "name", "module"), ast.get_docstring(node) or ""
            yield from _docstrings_of_constants(node.body)


def _docstrings_of_constants(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for one, after in pairwise(body):
        if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                yield ast.unparse(target), after.value.value


def comments(code: str) -> Iterator[str]:
    """Returns the comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return (token.string for token in tokens if token.type == tokenize.COMMENT)


def faults_of(code: str) -> Iterator[str]:
    """Yields the faults of the docstrings and comments of a module."""
    yield from (f"{name}: {fault}" for name, docstring in docstrings(code) for fault in faults(docstring))
    yield from (f"a comment {fault}" for comment in comments(code) for fault in dialect(comment))


def modules_of(folder: str) -> list[Path]:
    """Returns the modules below a folder of the project."""
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_keep_the_rules_of_style(folder: str) -> None:
    found = [
        f"{module.relative_to(ROOT)} {fault}"
        for module in modules_of(folder)
        for fault in faults_of(module.read_text())
    ]
    assert [fault for fault in found if fault not in ALLOWED] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_of_functions_begin_with_a_verb(folder: str) -> None:
    """Docstrings of expressions, such as `bl.count()`, name the value."""
    modules = [one for one in modules_of(folder) if one.parent != ROOT / "beamlike" / "expressions"]
    found = {str(one.relative_to(ROOT)): [*functions_described_as_things(one.read_text())] for one in modules}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_no_word_of_the_dialect(page: Path) -> None:
    if page.name not in QUOTING:
        found = [f"{page.name}: {fault}" for fault in dialect(CODE.sub("", page.read_text()))]
        assert [fault for fault in found if fault not in ALLOWED] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_pages_keeps_the_rules_of_style(page: Path) -> None:
    blocks = PYTHON.findall(page.read_text())
    found = [f"{page.name} {fault}" for block in blocks for fault in faults_of(block)]
    assert [fault for fault in found if fault not in ALLOWED] == []
    assert [name for block in blocks for name in functions_described_as_things(block)] == []


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


def test_faults_of_constants_and_comments_are_found() -> None:
    code = 'A = 3\n"""How many rows pass."""\nB: int = 4\n"""The others."""\n# All rows but for the last.\n'
    assert list(faults_of(code)) == ["A: begins with a clause", "a comment says 'but for'"]


def test_functions_that_are_described_as_things_are_found() -> None:
    code = "\n".join(
        f"{decorator}\ndef {name}():\n    'The rows.'\n"
        for name, decorator in {
            "read": "",
            "rows": "@pytest.fixture",
            "test_read": "",
            "n": "@property",
        }.items()
    )
    assert list(functions_described_as_things(code)) == ["read"]


def test_code_on_a_page_is_no_prose() -> None:
    page = "Is `but for` code?\n\n```python\nlest = 1\n```\n\n    nobody\n\nYes: nobody doubts it.\n"
    assert list(dialect(CODE.sub("", page))) == ["says 'nobody'"]
