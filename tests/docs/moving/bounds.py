"""The losses for several bounds of the watermark, in the run at the beginning of docs/completeness.md."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from typing import Any, Final

from tests.support.places import ROOT

PAGE: Final = ROOT / "docs" / "completeness.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "bounds.svg"


def play() -> Any:
    """Runs the first code of the page, and returns its prediction."""
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    names: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        exec(compile(found[1], str(PAGE), "exec", dont_inherit=True), names)
        return names["bl"].observe.tune("plays.jsonl", bounds=["45s"])


def draw(tuning: Any) -> str:
    """Returns the picture as SVG."""
    drawn: str = tuning.plot().svg("bounds")
    return drawn
