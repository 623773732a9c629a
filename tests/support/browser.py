"""A headless browser for the pages that this project writes; tests are skipped where none is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import attrs
import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 120
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_CONSOLE = re.compile(r'CONSOLE.*?\] "(.*)", source:')

_MEASURE = """
<script>
const told = [];
for (const svg of document.querySelectorAll("svg")) {
  const edge = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
  const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
  boxes.forEach(([text, box], index) => {
    const beside = box.left < edge.left - 1 || box.right > edge.right + 1;
    if (beside || box.top < edge.top - 1 || box.bottom > edge.bottom + 1)
      told.push(["cut off", svg.getAttribute("aria-label"), text]);
    for (const [other, place] of boxes.slice(index + 1)) {
      const wide = Math.min(box.right, place.right) - Math.max(box.left, place.left);
      const high = Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top);
      if (wide > 1 && high > 3) told.push(["overlap", svg.getAttribute("aria-label"), text, other]);
    }
  });
}
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) told.push(["wider than the window", page.scrollWidth, page.clientWidth]);
document.body.innerHTML = "<pre id='told'></pre>";
document.getElementById("told").textContent = JSON.stringify(told);
</script>
"""


@attrs.frozen
class Browser:
    """A browser that opens local pages, each in a new profile."""

    program: str
    work: Path

    def console(self, page: Path) -> list[str]:
        """Returns the page's console messages: errors, and resources that its content policy has blocked."""
        _, told = self._run("--enable-logging=stderr", "--dump-dom", page.as_uri())
        return _CONSOLE.findall(told)

    def screenshot(self, page: Path, picture: Path, *, width: int = 1100, height: int = 2000) -> None:
        """Writes a picture of the page."""
        self._run(f"--window-size={width},{height}", f"--screenshot={picture}", page.as_uri())

    def faults(self, page: Path, *, width: int = 1100) -> list[Any]:
        """Returns texts of pictures that overlap or are cut off, and whether the page is wider than the window."""
        copy = self.work / f"measured-{page.name}"
        text = page.read_text(encoding="utf-8")
        copy.write_text(_POLICY.sub("", text).replace("</body>", f"{_MEASURE}</body>"), encoding="utf-8")
        dom, _ = self._run(f"--window-size={width},1000", "--dump-dom", copy.as_uri())
        (told,) = re.findall(r'<pre id="told">(.*?)</pre>', dom, re.DOTALL)
        faults: list[Any] = json.loads(unescape(told))
        return faults

    def pdf(self, page: Path, file: Path) -> None:
        """Prints the page to a PDF file."""
        self._run("--no-pdf-header-footer", f"--print-to-pdf={file}", page.as_uri())

    def _run(self, *arguments: str) -> tuple[str, str]:
        done = subprocess.run(
            [
                self.program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={self.work / 'profile'}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        return done.stdout, done.stderr


def find_browser(work: Path) -> Browser:
    """Returns the browser; skips the test where none is installed."""
    return Browser(find_program(), work)


def find_program() -> str:
    """Returns the path of a browser; skips the test where none is installed."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)}")
    return program
