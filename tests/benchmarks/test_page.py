"""The page of figures: its tables are those of the stored figures. A run leaves out what is measured of its commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import bench, page, readme
from benchmarks.machine import MEASURED, commit
from benchmarks.section import Section

ABOUT = {"commit": "abcdefghij", "processors": 2, "processor": "x"}


def between(name: str, path: Path) -> list[str]:
    """Returns the lines between the markers of a table."""
    _, _, rest = path.read_text().partition(f"<!-- {name} -->\n")
    text, ended, _ = rest.partition(f"<!-- end of {name} -->\n")
    assert ended, f"{path} has no place for {name!r}"
    return text.strip().splitlines()


@pytest.mark.parametrize("section", page.SECTIONS, ids=lambda section: section.name)
def test_every_table_of_a_page_is_that_of_the_stored_figures(section: Section) -> None:
    assert between(section.name, section.page) == "\n".join(section.text()).strip().splitlines()


def test_the_contents_are_those_of_the_stored_figures() -> None:
    assert between("contents", readme.README) == [*page.contents()]


def test_every_part_of_a_run_has_a_table() -> None:
    assert set(bench.PARTS) <= {section.name for section in page.SECTIONS}


@pytest.fixture
def section(tmp_path: Path) -> Section:
    target = tmp_path / "page.md"
    target.write_text("<!-- x -->\n<!-- end of x -->\n")
    return Section("x", ("engine", "events"), lambda figures: ["lines"], tmp_path / "x.json", target)


def test_a_figure_of_this_commit_is_not_measured_again(section: Section) -> None:
    section.keep([{"engine": "a", "events": 1}], {**ABOUT, "commit": "before"})
    section.keep([{"engine": "b", "events": 1}, {"engine": "c", "events": 1, "failed": "no"}], ABOUT)
    wanted = [("a", 1), ("b", 1), ("c", 1)]
    assert section.left(wanted, "abcdefghij") == [("a", 1), ("c", 1)]
    assert section.left(wanted, None) == wanted


def test_figures_of_code_that_differs_from_its_commit_count_for_none(section: Section) -> None:
    section.keep([{"engine": "a", "events": 1}], {**ABOUT, "commit": "abc+"})
    assert section.left([("a", 1)], "abc+") == [("a", 1)]


def test_the_commits_and_dates_of_all_figures_are_below_a_table(section: Section) -> None:
    section.show()
    assert section.page.read_text() == "<!-- x -->\n\nNot measured yet.\n\n<!-- end of x -->\n"
    section.keep([{"engine": "a", "events": 1}], {**ABOUT, "commit": "0123456789"})
    section.keep([{"engine": "b", "events": 1}], ABOUT)
    section.show()
    day = section.figures[0]["time"][:10]
    assert f"On 2 cores of x; commit 0123456 on {day}, commit abcdefg on {day}." in section.page.read_text()


def test_a_part_runs_only_if_figures_of_the_commit_are_missing(
    section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "SECTIONS", (section,))
    monkeypatch.setattr(page, "show", section.show)
    monkeypatch.setattr(bench, "PARTS", {"x": bench.Part("no_such_benchmark", 1)})
    monkeypatch.setattr(bench, "commit", lambda: "abcdefghij")
    failed = CliRunner().invoke(bench.main, ["--only", "x"])
    assert failed.exit_code == 1
    assert "failed: x" in failed.output
    section.keep([{"engine": "a", "events": 1}], ABOUT)
    assert "measured of abcdefg already" in CliRunner().invoke(bench.main, ["--only", "x"]).output
    section.keep([{"engine": "b", "events": 1}], {**ABOUT, "commit": "before"})
    assert CliRunner().invoke(bench.main, ["--only", "x"]).exit_code == 1
    assert CliRunner().invoke(bench.main, ["--only", "y"]).exit_code == 2


def test_the_commit_of_a_figure_is_the_last_that_changed_the_measured_code(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    code = tmp_path / MEASURED[0] / "code.py"
    code.parent.mkdir()
    code.write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "code")
    measured = git("rev-parse", "HEAD")
    (tmp_path / "figures.json").write_text("{}")
    git("add", ".")
    git("commit", "--quiet", "-m", "figures")
    assert commit(tmp_path) == measured
    code.write_text("2")
    assert commit(tmp_path) == f"{measured}+"
    assert commit(tmp_path / "nowhere") is None
