"""`python -m tests.docs.notebooks` executes examples/notebooks and draws the pictures of docs/notebook.md.

It writes the notebooks with their outputs as pages below build/notebooks. The picture of a run in its cell is a
screenshot, which needs a browser; without one, the old picture stays.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import nbformat
from nbconvert import HTMLExporter
from PIL import Image, ImageChops

from beamlike.observe.charts.figure import Picture
from tests.support.browser import BROWSERS, Browser
from tests.support.notebooks import NOTEBOOKS, execute
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "notebook.md"
PANES = ROOT / "docs" / "pictures" / "panes.svg"
RUN = ROOT / "docs" / "pictures" / "notebook.png"
BUILT = ROOT / "build" / "notebooks"

_LIVE = "live_table"
_FIRST, _LAST = "runner = ", "table(entries=3)"
"""The beginning of the first cell of the picture of a run, and the end of the last one."""
_WIDTH, _HEIGHT = 900, 1200
_WHITE: Final = "#ffffff"


def panes() -> Picture:
    """Returns the picture that the code of the page draws."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    # The block after the one that defines `totals` saves the picture.
    exec(next(block for block in blocks if "totals =" in block), names)
    picture: Picture = names["totals"].plot("total")
    return picture


def page(notebook: Any) -> str:
    """Returns a notebook with its outputs as HTML."""
    html, _ = HTMLExporter(theme="light").from_notebook_node(notebook)
    return str(html)


def part(notebook: Any) -> Any:
    """Returns the notebook with the cells of the picture only, as they are while the run continues."""
    cells = notebook["cells"]
    start = next(number for number, cell in enumerate(cells) if cell["source"].startswith(_FIRST))
    end = next(number for number, cell in enumerate(cells) if cell["source"].endswith(_LAST))
    return nbformat.v4.new_notebook(cells=cells[start : end + 1], metadata=notebook["metadata"])


def running(path: Path, folder: Path) -> Any:
    """Executes a notebook up to the last cell of the picture."""
    notebook = nbformat.read(path, as_version=4)
    end = next(n for n, cell in enumerate(notebook["cells"]) if cell["source"].endswith(_LAST))
    notebook["cells"] = notebook["cells"][: end + 1]
    return execute(notebook, folder)


def photograph(notebook: Any, browser: Browser, work: Path) -> Image.Image:
    """Returns a screenshot of a notebook, without empty space below."""
    html = work / "part.html"
    html.write_text(page(notebook), encoding="utf-8")
    browser.screenshot(html, work / "part.png", width=_WIDTH, height=_HEIGHT)
    with Image.open(work / "part.png") as taken:
        whole = taken.convert("RGB")
    _, _, _, bottom = ImageChops.difference(whole, Image.new("RGB", whole.size, _WHITE)).getbbox()
    return whole.crop((0, 0, whole.width, min(bottom + 12, whole.height)))


def main() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    PANES.write_text(panes().svg("panes"), encoding="utf-8")
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            done = execute(nbformat.read(path, as_version=4), Path(folder))
        (BUILT / f"{path.stem}.html").write_text(page(done), encoding="utf-8")
        print(BUILT / f"{path.stem}.html")
    if program := next(filter(None, map(shutil.which, BROWSERS)), None):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as work:
            (live,) = (path for path in NOTEBOOKS if path.stem == _LIVE)
            taken = photograph(part(running(live, Path(folder))), Browser(program, Path(work)), Path(work))
            taken.quantize(64).save(RUN, optimize=True)
        print(RUN)


if __name__ == "__main__":
    main()
