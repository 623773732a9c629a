"""The notebooks run unchanged, have the described output, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import nbformat
import pytest

from tests.support.notebooks import NOTEBOOKS, execute

SHOWN: Final = {
    "first_steps": [
        "<svg",
        "session-lengths: batch ",
        "Collection &#x27;mobile&#x27; of",
        "BatchRecord",
        "sessions",
    ],
    "late_data": [
        "<svg",
        "watermark=bl.BoundedOutOfOrderness(&quot;1m&quot;)",
        "7 of 240 elements that minutes dropped",
    ],
    "live_table": [
        "<Grouped 'orders.window_into' by city",
        "2 panes retracted",
        "<td>&quot;Oslo&quot;</td><td>2</td>",
    ],
}
"""Texts among the outputs of each notebook."""


def outputs(notebook: Any) -> str:
    """Returns the data of all outputs as one text."""
    shown = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return "\n".join(text for data in shown for text in data.values())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_says(path: Path, tmp_path: Path) -> None:
    shown = outputs(execute(nbformat.read(path, as_version=4), tmp_path))
    assert [text for text in SHOWN[path.stem] if text not in shown] == []


def test_notebooks_are_stored_without_outputs() -> None:
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4)["cells"]]
    of_runs = [cell["source"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]
    assert of_runs == [], "remove them: jupyter nbconvert --clear-output --inplace examples/notebooks/*.ipynb"
