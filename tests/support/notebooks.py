"""Executes notebooks in a kernel of this environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

from tests.support.places import ROOT

NOTEBOOKS: Final = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
_SECONDS = 120  # for each cell


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Executes all cells in a folder and returns the notebook with its outputs. Raises the error of a cell."""
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="python3", timeout=_SECONDS, resources=place).execute()
    return notebook


def outputs(*cells: str, folder: Path) -> list[list[Any]]:
    """Executes cells, and returns the data of the outputs of each, by MIME type."""
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = execute(nbformat.v4.new_notebook(cells=code), folder)
    return [[output["data"] for output in cell["outputs"]] for cell in notebook["cells"]]
