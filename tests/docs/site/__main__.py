"""`python -m tests.docs.site` builds the documentation site into build/site/html, where a warning is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.docs.site.navigation import Page, pages, published
from tests.docs.site.staging import stage
from tests.support.places import ROOT


def build() -> None:
    """Builds the site."""
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    llms = (ROOT / "llms.txt").read_text(encoding="utf-8")
    listed = pages(llms)
    stage(listed, ROOT / config["docs_dir"])
    shutil.rmtree(ROOT / config["site_dir"], ignore_errors=True)
    _generate()
    _require_tables(ROOT / config["site_dir"])
    (ROOT / config["site_dir"] / "llms.txt").write_text(published(llms, config["site_url"]), encoding="utf-8")
    _publish_markdown(listed, config)


def _generate() -> None:
    """Runs the generator. A warning of griffe about a docstring is an error, too."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="")
    if done.returncode or "griffe: " in done.stdout:
        sys.exit(done.returncode or "the site has warnings")


def _require_tables(folder: Path) -> None:
    """Ends with an error if a table is shown as the text of its source, because a line stands before its header."""
    broken = [
        f"{page.relative_to(folder)}: {text}"
        for page in sorted(folder.rglob("*.html"))
        for text in re.findall(r"<p>([^<]*\|\s*:?-{3,}.{0,80})", page.read_text(encoding="utf-8"))
    ]
    if broken:
        sys.exit("\n".join(["these tables are shown as text:", *broken]))


def _publish_markdown(listed: list[Page], config: dict[str, str]) -> None:
    """Copies the Markdown of the pages next to their HTML, for readers of `llms.txt`."""
    for page in listed:
        target = ROOT / config["site_dir"] / page.place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / config["docs_dir"] / page.place, target)


if __name__ == "__main__":
    build()
