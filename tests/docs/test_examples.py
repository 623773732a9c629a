"""Examples print the expected output, README and docs show that output, and the code of the docs runs."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.testing.play import play as play_transcripts
from beamlike.testing.transcripts import parse
from examples import leaderboard, panes
from tests.support.places import ROOT
from windowing.windowing import Windowing

EXAMPLES = {"panes": panes.main, "leaderboard": leaderboard.main}
DOCS = (
    "triggers.md",
    "aggregates.md",
    "joins.md",
    "sides.md",
    "testing.md",
    "watermarks.md",
    "reports.md",
    "telemetry.md",
    "sinks.md",
    "tables.md",
    "bad-input.md",
    "architecture.md",
    "operators.md",
    "process.md",
    "rows.md",
    "cookbook.md",
    "connectors.md",
    "completeness.md",
    "replay.md",
    "files.md",
    "sql.md",
    "index.md",
    "start.md",
    "notebook.md",
    "concepts.md",
    "tutorials/ads.md",
    "tutorials/changes.md",
    "tutorials/clicks.md",
    "tutorials/limit.md",
    "tutorials/sensors.md",
    "coming-from/structured-streaming.md",
    "coming-from/pandas.md",
    "coming-from/beam.md",
    "coming-from/flink.md",
    "coming-from/bytewax-and-quix.md",
    "consistency.md",
)
LONG = ("completeness.md", "tutorials/ads.md")
"""The pages whose stories are of many batches."""
FIRST, SECOND = (datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in (0, 2))

_PYTHON = re.compile(
    r"^```python(?: (?P<program>spark|beam|bytewax))?\n(?P<code>.*?)^```\n(?:\n(?P<shown>(?:    [^\n]*\n)+))?",
    re.M | re.S,
)
PEERS = {"beam": ("beam.md", "apache_beam"), "bytewax": ("bytewax-and-quix.md", "bytewax")}
"""The pages with a program of another framework, and its package, which only some environments have."""


def printed(example: str, *arguments: str, columns: int = 80) -> list[str]:
    """Returns the lines that an example prints on a terminal of this width, without trailing blanks."""
    result = CliRunner().invoke(EXAMPLES[example], arguments, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.output.splitlines()]


# --- panes ---


def test_each_mode_shows_the_same_scores_in_its_own_way() -> None:
    lines = printed("panes")
    assert "watermark 12:08  12:06   on_time 1   8  on_time 1  11=3+8    early   0  -3" in lines
    late = lines.index("1 at 12:07:46    12:06   late    2   1  late    2  12=1+3+8  on_time 1 -11")
    assert lines[late + 1].split() == ["late", "2", "12=1+3+8"]


def test_sums_tell_the_modes_apart() -> None:
    sums = {line[:11]: line[11:].split() for line in printed("panes") if line.startswith("sum of")}
    assert sums == {"sum of all ": ["26", "45", "26"], "sum of last": ["10", "26", "26"]}
    assert sum(step.elements["score"].sum() for step in panes.SCORES.steps) == 26


def test_discarding_panes_are_the_parts_of_the_accumulating_ones() -> None:
    played = panes.play()
    of = {
        mode: [pane for rows in played[mode].values() for pane in rows if not pane.get("pane_retracted")]
        for mode in panes.MODES
    }
    seen: dict[datetime, list[int]] = {}
    for part, whole in zip(of[bl.DISCARDING], of[bl.ACCUMULATING], strict=True):
        seen.setdefault(part["window_start"], []).extend(part["scores"])
        assert whole["scores"] == sorted(seen[whole["window_start"]])
    kept = ("window_start", "scores", "pane_timing", "pane_index")
    assert pl.DataFrame(of[bl.RETRACTING]).select(kept).rows() == (
        pl.DataFrame(of[bl.ACCUMULATING]).select(kept).rows()
    )


# --- leaderboard ---


def test_the_leader_changes_early_on_time_and_late() -> None:
    changes = [
        (standing.window, standing.timing, *standing.points.most_common(1)[0], standing.together)
        for standing in leaderboard.standings(leaderboard.play())
    ]
    assert changes == [
        (FIRST, "early", "red", 5, 8),
        (FIRST, "early", "blue", 9, 18),
        (FIRST, "on_time", "red", 12, 25),
        (SECOND, "early", "green", 2, 2),
        (FIRST, "late", "blue", 17, 33),
        (SECOND, "on_time", "green", 2, 2),
    ]


def test_the_second_stage_has_the_sum_of_the_board() -> None:
    for standing in leaderboard.standings(leaderboard.play()):
        assert standing.together == standing.points.total()


def test_early_panes_come_as_processing_time_passes_and_not_before() -> None:
    played = leaderboard.play()
    times = {batch.batch: batch.processing_time // 1_000_000 for batch in played.batches}
    early = [
        times[batch] for batch, rows in played.teams.items() if any(r["pane_timing"] == "early" for r in rows)
    ]
    assert [time for time in dict.fromkeys(early) if time < 93] == [31, 62]


def test_what_came_too_late_is_told_and_counted() -> None:
    assert "Dropped as late: 9 for red at 12:00:40, window 12:00" in printed("leaderboard")
    dropped = [dict(batch.stages["teams"].dropped) for batch in leaderboard.play().batches]
    assert [counts for counts in dropped if counts] == [{"late": 1}]


@pytest.mark.slow
@pytest.mark.spark
def test_the_leaderboard_is_the_same_on_spark(spark: Any) -> None:
    def known(played: leaderboard.Played) -> Any:
        rows = [
            {batch: sorted(map(repr, found)) for batch, found in kind.items()}
            for kind in (played.teams, played.together, played.late)
        ]
        return rows, [leaderboard_row(standing) for standing in leaderboard.standings(played)]

    def leaderboard_row(standing: leaderboard.Standing) -> Any:
        batch = standing.batch
        return batch.batch, batch.processing_time, standing.window, standing.ranked(), standing.together

    assert known(leaderboard.play(bl.SparkRunner(session=spark, shards=2))) == known(leaderboard.play())


# --- README and docs ---


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_readme_shows_what_the_example_prints(example: str) -> None:
    readme = (ROOT / "README.md").read_text()
    _, _, after = readme.partition(f"    $ python -m examples.{example}\n")
    block = re.match(r"(?:    .*\n)+", after)
    assert block
    shown = [line[4:].rstrip() for line in block[0].splitlines()]
    lines = iter(printed(example))
    assert len(shown) > 5
    assert [line for line in shown if line != "..." and line not in lines] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_fit_eighty_columns(example: str) -> None:
    assert printed(example, columns=80) == printed(example, columns=120)


def blocks_of(name: str) -> list[re.Match[str]]:
    """Returns all blocks of code of a page that can be run."""
    text = (ROOT / "docs" / name).read_text()
    blocks = list(_PYTHON.finditer(text))
    assert len(blocks) == text.count("```python") - text.count("```python no-run")
    return blocks


def require_printed(
    name: str,
    folder: Path,
    namespace: dict[str, Any],
    replaced: str = "",
    blocks: Iterable[re.Match[str]] = (),
) -> None:
    """Runs the code of a page and compares its output; `replaced` is a name in it to replace by another."""
    for block in blocks or [block for block in blocks_of(name) if not block["program"]]:
        code = block["code"].replace(replaced, "replaced") if replaced else block["code"]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(folder):
            exec(compile(code, name, "exec", dont_inherit=True), namespace)
        assert out.getvalue() == re.sub("^    ", "", block["shown"] or "", flags=re.M)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in DOCS]
)
def test_the_code_of_the_docs_prints_what_is_shown_below_it(name: str, tmp_path: Path) -> None:
    require_printed(name, tmp_path, {})


@pytest.mark.slow
@pytest.mark.spark
def test_the_recipes_of_the_cookbook_print_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    def on_spark(checkpoint: str | None = None, drain: bool = False) -> bl.SparkRunner:
        return bl.SparkRunner(checkpoint, session=spark, shards=2, drain=drain)

    require_printed("cookbook.md", tmp_path, {"replaced": on_spark}, replaced="bl.LocalRunner")


@pytest.mark.slow
@pytest.mark.spark
def test_programs_for_spark_print_what_is_shown_below_them(spark: Any, tmp_path: Path) -> None:
    name = "coming-from/structured-streaming.md"
    data, *others = blocks_of(name)
    programs = [block for block in others if block["program"] == "spark"]
    assert len(programs) == 3
    require_printed(name, tmp_path, {"spark": spark.newSession()}, blocks=[data, *programs])


@pytest.mark.parametrize("peer", PEERS)
def test_programs_for_other_frameworks_print_what_is_shown_below_them(peer: str, tmp_path: Path) -> None:
    page, package = PEERS[peer]
    pytest.importorskip(package)
    name = f"coming-from/{page}"
    programs = [block for block in blocks_of(name) if block["program"] == peer]
    assert programs
    require_printed(name, tmp_path, {}, blocks=programs)


def cells(text: str) -> list[list[str]]:
    """Returns the cells of all tables in a text of Markdown."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]


def trigger(cell: str) -> Any:
    """Returns the trigger in a cell, or None."""
    code = cell.strip("`")
    return eval(code, vars(bl)) if re.match(r"`[A-Z]\w+\(.*\)`$", cell) else None


def test_the_docs_have_every_trigger_and_what_it_is_after_a_grouping() -> None:
    rows = [row for row in cells((ROOT / "docs/triggers.md").read_text()) if len(row) == 5]
    made = [(trigger(row[0]), trigger(row[4])) for row in rows if trigger(row[0]) is not None]
    assert len(made) == 14
    for before, after in made:
        assert before.continuation() == after, before
    readme = (ROOT / "README.md").read_text()
    for name in sorted({type(before).__name__ for before, _ in made} - {"OrFinally"}):
        assert f"{name}(" in readme, name


def test_what_the_docs_recommend_loses_no_data() -> None:
    pairs = [row for row in cells((ROOT / "docs/triggers.md").read_text()) if len(row) == 2]
    recommended = [found for _, cell in pairs if (found := trigger(cell)) is not None]
    assert len(recommended) == 6
    for found in recommended:
        Windowing(bl.FixedWindows("1m"), found, allowed_lateness="1m")


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}" for name in DOCS)])
def test_names_in_tables_and_text_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    assert all(hasattr(bl, found) for found in re.findall(r"\bbl\.(\w+)", text))
    for found in re.findall(r"`(After\w+|\w+Windows|Sessions|Repeatedly|Never|Always)\b", text):
        assert hasattr(bl, found), found


def test_the_transcript_of_the_docs_passes_and_a_wrong_one_fails_as_is_shown() -> None:
    text = (ROOT / "docs/testing.md").read_text()
    (toml,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    wrong = toml.replace("[1, 2, 3]", "[1, 2, 9]")
    passed, failed = play_transcripts([parse(toml, "docs"), parse(wrong, "docs")], "local")
    assert passed.status == "ok"
    assert f"    {failed}\n" in text
