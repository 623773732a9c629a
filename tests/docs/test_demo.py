"""The demo, in process: its output, its failures, and that README and docs show its real output.

The Spark tests check that both runners agree.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

from beamlike.observe.waiting.explain import why
from beamlike.observe.watch import frame
from beamlike.records.history import History
from examples import demo, oracle, session_lengths
from tests.support.browser import find_browser
from tests.support.places import ROOT
from windowing.time import MAX_TIME, MIN_TIME

PICTURES = ("watermarks.svg", "graph.svg")
SMALL = ["--runner", "local", "--events", "20000", "--files", "6"]


def test_both_variants_equal_the_oracle_and_earliest_delays_the_second_stage(tmp_path):
    result = CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.count("OK all") == 2
    assert "END_OF_WINDOW the second stage" in " ".join(result.output.split())
    assert "EARLIEST delays the second stage by" in " ".join(result.output.split())


@pytest.mark.slow
def test_it_can_be_run_again_on_the_same_folder(tmp_path):
    for _ in range(2):
        assert CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)]).exit_code == 0


def test_a_wrong_answer_is_shown_and_fails(tmp_path, monkeypatch):
    right = oracle.averages
    monkeypatch.setattr(oracle, "averages", lambda *given: right(*given).with_columns(pl.col("sessions") + 1))
    few = ["--runner", "local", "--events", "2000", "--files", "2"]
    result = CliRunner().invoke(demo.main, [*few, "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert "WRONG" in result.output


def test_the_pipelines_can_be_planned_before_there_is_any_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for pipeline in (session_lengths.end_of_window, session_lengths.earliest):
        stages = pipeline().plan().stages
        assert set(stages) == {"sessions of mobile", "sessions of console", "average"}


def test_it_opens_with_where_to_see_it_and_says_why_a_window_waits(tmp_path):
    result = CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)], env={"COLUMNS": "1000"})
    opening, _, rest = result.output.partition("END_OF_WINDOW: OK")
    assert re.search(r"See it while it runs: http://127\.0\.0\.1:\d+/$", opening.strip())
    assert "Why did EARLIEST have no result for the next window after batch 3?" in rest
    assert "has elements that wait for a pane, and a pane has the time of its earliest element" in rest


def test_the_watermarks_and_windows_of_both_variants_are_side_by_side(work):
    histories = [History.open(work / combiner.value) for combiner in demo.VARIANTS]
    outcomes = [
        demo.Outcome(
            combiner, history, oracle.written(work / combiner.value / "averages").sort("window_start"), ()
        )
        for combiner, history in zip(demo.VARIANTS, histories, strict=True)
    ]
    assert cells(demo.watermarks(outcomes, 5))[-1] == [
        "average",
        "12:36:52",
        "12:36:52",
        "12:24:49",
        "12:24:00",
    ]
    windows = cells(demo.windows_table(outcomes))
    assert windows[0] == ["12:00", "85.9 s", "3", "224.8 s", "1,651"]
    assert windows[4][0] == "..."
    assert windows[-1] == ["13:04", "285.6 s", "64", "", ""]


@pytest.mark.parametrize(
    ("us", "shown"), [(MIN_TIME, "-inf"), (MAX_TIME, "+inf"), (1_767_268_859_999_999, "12:00:59")]
)
def test_watermarks_are_shown_as_time_of_day_with_their_limits(us, shown):
    assert demo.clock(us) == shown


# --- Reports and pictures, and README and docs, which show them ---


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole demo."""
    folder = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(demo.main, ["--runner", "local", "--work", str(folder)])
    assert result.exit_code == 0, result.output
    _, _, listed = result.output.partition("To look at:\n")
    assert [Path(line.strip()).relative_to(folder).as_posix() for line in listed.splitlines()] == [
        "end_of_window/report.html",
        "earliest/report.html",
        *PICTURES,
    ]
    return folder


@pytest.fixture(scope="module")
def asked(work: Path) -> History:
    """The history of EARLIEST up to the batch after which README and docs ran the command."""
    history = History.open(work / "earliest")
    del history.batches[6:]
    history.closed = None
    return history


def cells(table: Table) -> list[list[str]]:
    """Returns the rows of a table."""
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def texts(picture: Path) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_readme_are_those_of_the_demo(work, name):
    assert texts(ROOT / "docs" / "pictures" / name) == texts(work / name)
    assert (ROOT / "docs" / "pictures" / name).stat().st_size < 150_000


def test_the_pictures_say_what_holds_the_second_stage(work):
    assert any(text.endswith(" held back") for text in texts(work / "watermarks.svg"))
    assert "input 12:24:49, output 12:24:00" in texts(work / "graph.svg")


@pytest.mark.parametrize("variant", ["end_of_window", "earliest"])
def test_the_reports_of_the_demo_can_be_read_in_a_browser(work, variant, tmp_path):
    browser, page = find_browser(tmp_path), work / variant / "report.html"
    assert browser.console(page) == []
    assert browser.faults(page) == []


def shown(document: str, command: str) -> list[str]:
    """Returns the output of a command that a document shows."""
    _, _, after = (ROOT / document).read_text(encoding="utf-8").partition(f"    $ beamlike {command} ")
    block = re.match(r"[^\n]*\n((?:(?:    .*)?\n)+)", after)
    assert block
    return [line.strip() for line in block[1].splitlines()]


def standing(lines: list[str]) -> list[list[str]]:
    """Returns names with event times or counts: the output that depends neither on the clock nor on shards."""
    rows = [line.strip() for line in lines if re.match("console|mobile|sessions|average ", line)]
    return [re.findall(r"^[a-z ]+\b(?=  )|\d\d:\d\d:\d\d|\d+,\d{3}|key \d+", row) for row in rows]


@pytest.mark.parametrize("document", ["README.md", "docs/reports.md"])
def test_the_documents_show_what_watch_shows(asked, document):
    console = Console(width=100, file=io.StringIO())
    console.print(frame(asked))
    printed = standing(console.file.getvalue().splitlines())
    found = standing(shown(document, "watch"))
    assert len(found) in (5, 15)
    assert found == printed[: len(found)]


def test_the_readme_shows_what_why_says(asked):
    said = " ".join(why(asked, stage="average", window="2026-01-01T12:25Z"))
    parts = " ".join(shown("README.md", "why")).split("...")
    assert sum(map(len, parts)) > 500
    assert all(part.strip() in said for part in parts)
