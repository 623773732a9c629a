"""All text of data and names in other languages is written by the functions for these, which `test_texts` tries."""

from __future__ import annotations

import ast
import re

from tests.support.places import ROOT


def test_all_writers_go_through_these_functions() -> None:
    only: dict[str, set[str]] = {
        r"^(import html|from html import .*escape)": {"beamlike/system/html.py"},
        r"^(import|from) shlex": {"beamlike/system/texts.py"},
        r'replace\(\'"\', \'""\'\)': {"beamlike/system/texts.py"},
        r"\{json\.dumps\(": {"beamlike/system/seals.py", "beamlike/io/kafka/avro.py"},
    }
    files = {str(path.relative_to(ROOT)): path.read_text() for layer in ("beamlike", "stages", "windowing")
             for path in (ROOT / layer).rglob("*.py")}  # fmt: skip
    for pattern, allowed in only.items():
        assert {name for name, text in files.items() if re.search(pattern, text, re.MULTILINE)} == allowed, (
            pattern
        )


MARKUP = {
    "beamlike/api/sides.py": {"self._place.side.name"},  # the text of an object, `<lookup in ...>`
    "beamlike/observe/report.py": {
        "' class=fit' if fit else ''", "' before the end' if moving is not latest else ''", "svg", "below", "body",
        "row('th', names)", "row('td', cells)", "latest.batch", "moving.batch", "which", "first", "others", "least",
        "figure",
    },
    "beamlike/records/failure.py": {"ROW_NOTE"},  # a pattern
    "beamlike/replaying/diffing/diff.py": {"''.join(bullets(self._effect_lines()))"},
    "beamlike/runtime/run/cell.py": {"state", "batch_tables(self._total)"},
    "beamlike/system/html.py": {
        "''.join(parts)", "head", "body", "items", "head and f'<thead><tr>{head}</tr></thead>'",
        "''.join((f'<td>{html_text(cell)}</td>' for cell in row))",
    },
}  # fmt: skip
"""Other values between tags: numbers, fixed words, and HTML."""


def unescaped(text: str) -> set[str]:
    """Returns the values that a module writes between tags without `html_text` or `table`."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        fixed = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        if re.search(r"</?[a-z][a-z0-9]*[ >/]", fixed):
            values = [ast.unparse(part.value) for part in parts if isinstance(part, ast.FormattedValue)]
            found |= {one for one in values if not one.startswith(("html_text(", "table("))}
    return found


def test_all_html_is_written_with_html_text() -> None:
    found = {
        str(path.relative_to(ROOT)): unescaped(path.read_text()) for path in (ROOT / "beamlike").rglob("*.py")
    }
    assert {name: values for name, values in found.items() if values} == MARKUP
