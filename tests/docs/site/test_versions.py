"""The sites of several versions in one folder."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.site.versions import add


def listed(published: Path) -> list[tuple[str, list[str]]]:
    return [(one["version"], one["aliases"]) for one in json.loads((published / "versions.json").read_text())]


def test_the_newest_version_is_first_by_number_and_leads_the_site(tmp_path: Path) -> None:
    built, published = tmp_path / "built", tmp_path / "site"
    built.mkdir()
    for version in ("0.9.0", "0.10.0", "0.2.1"):
        (built / "index.html").write_text(version)
        add(built, published, version)
    assert listed(published) == [("0.10.0", ["latest"]), ("0.9.0", []), ("0.2.1", [])]
    assert "url=0.10.0/" in (published / "index.html").read_text()
    assert (published / "0.9.0" / "index.html").read_text() == "0.9.0"


def test_a_version_that_is_built_again_replaces_its_site(tmp_path: Path) -> None:
    built, published = tmp_path / "built", tmp_path / "site"
    built.mkdir()
    (built / "old.html").write_text("old")
    add(built, published, "1.0.0")
    (built / "old.html").rename(built / "new.html")
    add(built, published, "1.0.0")
    assert sorted(path.name for path in (published / "1.0.0").iterdir()) == ["new.html"]
    assert listed(published) == [("1.0.0", ["latest"])]
